/* What the files of the driver of processors share: see native.c. */
#ifndef INLAY_NATIVE_DEVICE_H
#define INLAY_NATIVE_DEVICE_H

#include <pthread.h>

#include "inlay_driver.h"
#include "platform/pool.h"
#include "platform/wire.h"

enum { MOST_UNITS = 8, QUEUES = 2, MOST_BUFFERS = 64, MOST_KERNELS = 1 << 20, HEAD_BYTES = 64 };

struct inlay_memory {
    size_t bytes;
    uint32_t users; /* the owner and requests in flight */
};

typedef struct kernel {
    char name[WIRE_MOST_NAME + 1];
    uint32_t n_buffers, n_ints, n_phases;
    inlay_phase_t phases[WIRE_MOST_PHASES];
} kernel_t;

struct inlay_program {
    const void *code;
    size_t code_bytes;
    kernel_t *kernels;
    uint32_t n_kernels, users;
};

typedef struct waiting {
    struct waiting *next;
    inlay_request_t request;
    size_t size; /* of this object with its arrays */
} waiting_t;

typedef struct lane {
    struct inlay_device *device;
    pthread_t thread;
    waiting_t *first, **end;
    uint64_t started, ended, told;
} lane_t;

struct inlay_device {
    const inlay_host_t *host;
    inlay_pool_t *pool;
    char offers[1024];
    uint32_t units, threads, n_lanes;
    uint32_t latency, rate; /* a copy takes so many ns, and 1 us for so many bytes; 0: no time */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int is_closing;
    lane_t lanes[MOST_UNITS * QUEUES];
};

/* native_program.c: zeroed memory of the host, or NULL. */
void *inlay_native_take(const inlay_device_t *device, size_t bytes);
void inlay_native_give(const inlay_device_t *device, void *memory, size_t bytes);
/* Say why something is refused, and return the status. */
inlay_status_t inlay_native_refuse(inlay_status_t status, const char *why, char *message,
                                   size_t bytes);
/* Functions of the driver's table; and the end of a program that nothing uses. */
inlay_status_t inlay_native_load(inlay_device_t *device, const void *image, size_t size,
                                 inlay_program_t **program, char *message, size_t bytes);
int32_t inlay_native_find(inlay_device_t *device, inlay_program_t *program, const char *name,
                          uint32_t n_phases);
void inlay_native_drop(const inlay_device_t *device, inlay_program_t *program);

#endif
