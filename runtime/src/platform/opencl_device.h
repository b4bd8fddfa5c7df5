/* What the files of the OpenCL driver share: see opencl.c. */
#ifndef INLAY_OPENCL_DEVICE_H
#define INLAY_OPENCL_DEVICE_H

#include <pthread.h>

#include "host.h"
#include "inlay_driver.h"
#include "platform/opencl_api.h"

enum { MOST_UNITS = 8, QUEUES = 2, MOST_BUFFERS = 64, MOST_WAITS = 64, MOST_PHASES = 16 };

struct inlay_memory {
    cl_memory object;
    size_t bytes;
};

typedef struct kernel {
    struct kernel *next;
    char name[128];
    uint32_t number, n_phases;
    cl_kernel phases[MOST_PHASES];
    uint32_t n_arguments[MOST_PHASES];
    size_t group[MOST_PHASES]; /* the largest work group */
} kernel_t;

struct inlay_program {
    cl_program object;
    kernel_t *kernels; /* the last found first */
    uint32_t n_kernels;
};

typedef struct flight {
    struct flight *next; /* of its queue, in order */
    struct inlay_device *device;
    uint32_t queue, asserts, failure;
    uint64_t number;
    cl_event event;      /* of the last command */
    cl_event first;      /* of the first, where there are several and times are asked for */
    int64_t *times;
    cl_memory word;      /* where phases leave the number of an assertion, or NULL */
    inlay_done_t done;
    void *argument;
} flight_t;

typedef struct lane {
    cl_queue queue;
    flight_t *first, *last;
    uint64_t started;
} lane_t;

struct inlay_device {
    const inlay_host_t *host;
    void *library;
    cl_api cl;
    cl_device whole, units[MOST_UNITS];
    cl_context context;
    lane_t lanes[MOST_UNITS * QUEUES];
    inlay_device_facts_t facts;
    uint32_t rounds_exactly, is_cpu;
    uint32_t has_times;  /* whether its events have times */
    int64_t skew;        /* of its clock: what to add for the host's */
    pthread_mutex_t lock;
    pthread_cond_t landed;
    uint64_t in_flight;
};

inlay_status_t inlay_cl_status(cl_status status);
/* Say what the library answers, or why a request is wrong, and return the status. */
inlay_status_t inlay_cl_failed(cl_status status, const char *what, char *message, size_t bytes);
inlay_status_t inlay_cl_refuse(const char *why, char *message, size_t bytes);

/* opencl_start.c: functions of the driver's table. */
void inlay_cl_wait(inlay_device_t *device, inlay_ticket_t ticket);
inlay_status_t inlay_cl_start(inlay_device_t *device, const inlay_request_t *request,
                              inlay_ticket_t *ticket, char *message, size_t bytes);

#endif
