/* Drivers: how the runtime uses a device that is not the processor it runs on.
 *
 * A driver is a table of functions over three things that are its own: a device, memory of it, and
 * a program loaded into it.
 *
 *     open -> load, find, allocate -> start, start, ... -> release, unload -> close
 *
 * Memory is an object and not an address: it is reached by requests only. A device has one or more
 * *units* (sub-devices), each with a memory and with *queues*: requests of a queue begin and end in
 * order, requests of different queues are ordered only by the tickets they wait for. The queue
 * `unit * queues_per_unit + INLAY_QUEUE_RUN` is for launches, `... + INLAY_QUEUE_COPY` for copies;
 * a driver may run both kinds on any queue.
 *
 * Nothing here blocks but `close`, `load` and `open`. Functions may be called by any thread unless
 * a driver says otherwise. No failure ends the process: each is a status with a sentence.
 */
#ifndef INLAY_DRIVER_H
#define INLAY_DRIVER_H

#include "inlay_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct inlay_device inlay_device_t;
typedef struct inlay_memory inlay_memory_t;
typedef struct inlay_program inlay_program_t;
typedef struct inlay_driver inlay_driver_t;

enum { INLAY_QUEUE_RUN, INLAY_QUEUE_COPY };

typedef struct inlay_device_facts {
    char name[64];
    uint32_t units;
    uint32_t queues_per_unit;
    uint64_t memory_bytes;    /* of one unit; 0 where nothing bounds it */
    uint64_t largest_bytes;   /* of one memory object */
    uint32_t has_f64;
    uint32_t compute_units;   /* of one unit: work items that run at once are a multiple of this */
    char offers[1024];        /* words, empty where there are none: of a processor what native code for
                               * it may need; of others the driver's name, then what they are */
} inlay_device_facts_t;

/* Bytes of a device, from `offset` of `memory` on; of the host, at `host`, where memory is NULL. */
typedef struct inlay_region {
    inlay_memory_t *memory;
    size_t offset;
    void *host;
} inlay_region_t;

/* A request that was started: number n of a queue. Numbers begin at 1 and rise by 1; when a request
 * has ended, so have all before it in its queue. */
typedef struct inlay_ticket {
    uint32_t queue;
    uint64_t number;
} inlay_ticket_t;

typedef enum inlay_action {
    INLAY_COPY,  /* `bytes` from `from` to `to`, which do not overlap; 0 bytes are a wait in order */
    INLAY_LAUNCH /* a kernel: phase after phase, items[p] work items in phase p; 0 items are none */
} inlay_action_t;

/* Told once for each request that was started, by any thread, maybe before `start` returns. It must
 * not block; it may start requests. `answer` is the number of the assertion that does not hold where
 * the status is INLAY_CHECK_FAILED (of several the least). `message` is never NULL and lasts as long
 * as the call. */
typedef void (*inlay_done_t)(void *argument, inlay_status_t status, int64_t answer,
                             const char *message);

/* What a device is asked to do. All arrays are read before `start` returns; memory of the host is
 * used until `done`. */
typedef struct inlay_request {
    uint32_t action; /* inlay_action_t */
    uint32_t queue;
    const inlay_ticket_t *after; /* it begins when these have ended, however they ended */
    uint32_t n_after;
    inlay_region_t to, from; /* of a copy */
    size_t bytes;
    inlay_program_t *program; /* of a launch, and the number that `find` gave */
    uint32_t kernel;
    const inlay_region_t *buffers; /* of the device, workspace last */
    uint32_t n_buffers;
    const int64_t *ints;
    uint32_t n_ints;
    const int64_t *items; /* of each phase */
    uint32_t n_phases;
    inlay_done_t done;
    void *argument;
    /* Where a driver that knows stores, before `done`, when the device began and ended, in ns of
     * host.now; NULL where nobody asks. */
    int64_t *times;
} inlay_request_t;

struct inlay_driver {
    const char *name;
    /* Find a device. `options` are words `key=value` of the driver; unknown ones are refused.
     * INLAY_ABSENT where this machine has no such device. `host` outlives the device. */
    inlay_status_t (*open)(const inlay_host_t *host, const char *options, inlay_device_t **device,
                           char *message, size_t message_bytes);
    /* Wait for what is in flight, then give everything back. */
    void (*close)(inlay_device_t *device);
    void (*facts)(inlay_device_t *device, inlay_device_facts_t *facts);
    /* Make an image runnable. INLAY_BUILD_FAILED with the beginning of the compiler's log. */
    inlay_status_t (*load)(inlay_device_t *device, const void *image, size_t bytes,
                           inlay_program_t **program, char *message, size_t message_bytes);
    /* Kernels in flight are not disturbed by this. */
    void (*unload)(inlay_device_t *device, inlay_program_t *program);
    /* Return the number of a kernel with so many phases, or -1. */
    int32_t (*find)(inlay_device_t *device, inlay_program_t *program, const char *name,
                    uint32_t n_phases);
    /* Return memory of a unit with undefined contents, or why there is none. 0 bytes are allowed. */
    inlay_status_t (*allocate)(inlay_device_t *device, uint32_t unit, size_t bytes,
                               inlay_memory_t **memory, char *message, size_t message_bytes);
    /* Give memory back when the requests in flight that use it have ended. */
    void (*release)(inlay_device_t *device, inlay_memory_t *memory);
    /* Start a request; its ticket is stored first. On failure nothing was started and `done` is not
     * told. What a request that failed was to write is undefined; what waits for it runs or fails
     * too. */
    inlay_status_t (*start)(inlay_device_t *device, const inlay_request_t *request,
                            inlay_ticket_t *ticket, char *message, size_t message_bytes);
    /* Return when a request has ended and `done` has returned. Not to be called from `done`. */
    void (*wait)(inlay_device_t *device, inlay_ticket_t ticket);
    /* Optional, for devices without a thread of their own: do some work, tell what has ended, and
     * return whether anything is left in flight. Who waits calls it again and again. */
    int (*progress)(inlay_device_t *device);
    /* Optional, for devices that may be lost: whether this one is. */
    int (*is_lost)(inlay_device_t *device);
};

/* Drivers by name, in an array that the embedding program gives: it begins with what is built in, and
 * adds what else there is. `inlay_driver_find` suits `inlay_host_t.driver` with the table as `user`. */
typedef struct inlay_drivers {
    const inlay_driver_t **at;
    size_t count, most;
} inlay_drivers_t;

/* INLAY_BAD_ARGUMENT where there is one of that name already, INLAY_OUT_OF_MEMORY where the array is full. Not to
 * be called while another thread looks for a driver. */
inlay_status_t inlay_driver_add(inlay_drivers_t *drivers, const inlay_driver_t *driver);
/* Return the driver of a name, or NULL. */
const inlay_driver_t *inlay_driver_find(const inlay_drivers_t *drivers, const char *name, size_t bytes);

/* Accepts everything and does nothing, at once; memory has no bytes. What drivers begin from, and
 * what measures the price of the interface. */
extern const inlay_driver_t inlay_driver_null;

/* A device played by the host, for tests: memory of its own, and requests that end late and in an
 * order that a seed picks, as far as queues and tickets allow. One thread at a time. Options:
 * `units=2`, `seed=7`, `memory=65536` (bytes of a unit), `fail=3` (the third request fails).
 * An image is an array of inlay_host_kernel_t that ends with a NULL name. */
extern const inlay_driver_t inlay_driver_host;

typedef struct inlay_host_kernel {
    const char *name;
    uint32_t n_phases;
    const inlay_phase_t *phases;
} inlay_host_kernel_t;

/* platform/opencl.c: any device with an OpenCL driver, through the system's libOpenCL, which is
 * looked for when a device is opened. Options: `type=gpu` (`cpu`, `accelerator`, `any`), `index=0`
 * among those, `units=2` to divide it. An image is OpenCL C, with kernels `NAME_phase0`, ... whose
 * arguments are, for each buffer, memory and an offset in bytes, then the integers, then for phases
 * with assertions a word for the number of the one that fails. */
extern const inlay_driver_t inlay_driver_opencl;

/* platform/native.c: the processor as a device: a thread for each queue, and threads that share the parts
 * of a phase. An image is machine code in a frame (native.c). Options: `units=1` (to 8),
 * `threads=1` (that share parts), `offers=x86_64,avx2,...` (what images may need, as LLVM names it,
 * and words `key=value` for compilers; without it only the architecture), `latency=200000` and
 * `rate=500` (a copy takes so many ns, and 1 us for so many bytes: a real slow link, for measurements of
 * placements). */
extern const inlay_driver_t inlay_driver_native;

/* platform/remote.c: a device behind a server (inlay_serve.h) in another process or on another
 * machine, over ZeroMQ, whose library is looked for when a device is opened. Images are those of the
 * device behind the server. `load`, `allocate` and the first `find` of a kernel take a round trip, and
 * are not for `done`. INLAY_LOST when the connection ends or the server is silent for too long; the
 * device must then be closed. Options: `endpoint=tcp://HOST:PORT` (or `ipc://PATH`), `timeout=10000`
 * (milliseconds of silence), `connect=5000` (milliseconds until it must have answered first),
 * `window=32` (MiB of copies on their way), `key=PATH` of the server's key, `library=PATH` of libzmq. */
extern const inlay_driver_t inlay_driver_remote;

#ifdef __cplusplus
}
#endif
#endif
