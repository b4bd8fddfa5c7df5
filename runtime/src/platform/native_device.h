/* What the files of the driver of processors share: see native.c. */
#ifndef INLAY_NATIVE_DEVICE_H
#define INLAY_NATIVE_DEVICE_H

#include <pthread.h>

#include "platform/pool.h"
#include "platform/wire.h"
#include "waiting.h"

enum { MOST_KERNELS = 1 << 20 };

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

/* The thread of a lane. */
typedef struct worker {
    struct inlay_device *device;
    lane_t *lane;
    pthread_t thread;
    uint64_t told; /* requests whose end was told */
} worker_t;

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
    worker_t workers[MOST_UNITS * QUEUES];
};

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
