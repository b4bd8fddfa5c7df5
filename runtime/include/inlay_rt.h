/* The portable runtime: loads an executable, verifies it, runs it.
 *
 * The core allocates nothing by itself, keeps no globals and starts no threads: the embedding
 * program gives an `inlay_host_t`. A module is immutable and may be used by any number of threads;
 * an activation runs one call at a time and belongs to one thread while it does.
 *
 *     inlay_module_open  -> inlay_activation_create -> inlay_call -> ... -> inlay_result_release
 *
 * Sizes named `_bytes` are in bytes. Every function that can fail returns a status and, where it
 * takes an `inlay_error_t`, explains itself there in one sentence.
 */
#ifndef INLAY_RT_H
#define INLAY_RT_H

#include <stddef.h>
#include <stdint.h>

#include "inlay_rt_config.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes, grouped: 0x1_ argument, 0x2_ resource, 0x3_ container, 0x4_ device, 0x5_ program. */
typedef enum inlay_status {
    INLAY_OK = 0x00,
    INLAY_PENDING = 0x01,          /* from host.start only: it has begun, and is told of later */
    INLAY_BAD_ARGUMENT = 0x10,     /* the embedding program misuses an interface */
    INLAY_BAD_INPUT = 0x11,        /* an input does not fit the signature of the entry */
    INLAY_OUT_OF_MEMORY = 0x20,
    INLAY_STACK_LIMIT = 0x21,
    INLAY_CANCELLED = 0x22,
    INLAY_DEADLINE = 0x23,
    INLAY_LIMIT = 0x24,            /* a server of devices allows its clients no more */
    INLAY_NOT_INLAY = 0x30,
    INLAY_VERSION = 0x31,
    INLAY_TRUNCATED = 0x32,
    INLAY_CORRUPT = 0x33,
    INLAY_DIGEST = 0x34,
    INLAY_BYTECODE = 0x35,
    INLAY_SYMBOL = 0x36,
    INLAY_PERMISSION = 0x37, /* the system does not let code use what it needs */
    INLAY_ABSENT = 0x40, /* there is no such device here */
    INLAY_DEVICE_FAILED = 0x41,
    INLAY_BUILD_FAILED = 0x42, /* a device's compiler refuses a program */
    INLAY_LOST = 0x43, /* a device that was there does not answer any more */
    INLAY_CHECK_FAILED = 0x50,
    INLAY_INT_OVERFLOW = 0x51,
    INLAY_DIVIDE_BY_ZERO = 0x52,
    INLAY_BAD_DIMS = 0x53,
    INLAY_OUT_OF_RANGE = 0x54,
    INLAY_KIND_MISMATCH = 0x55,
    INLAY_READ_ONLY = 0x56,
    INLAY_KERNEL_FAILED = 0x57,
    INLAY_RACE = 0x58              /* the race detector found a fault of the runtime */
} inlay_status_t;

/* Return the name of a status as diagnostics write it: "run.int-overflow". Never NULL. */
const char *inlay_status_id(inlay_status_t status);

/* What went wrong, where. Strings point into the module or are literals. */
typedef struct inlay_error {
    inlay_status_t status;
    char message[INLAY_MESSAGE_BYTES];
    uint32_t depth;                               /* frames below, innermost first */
    const char *functions[INLAY_TRACE_DEPTH];     /* not terminated: see the sizes */
    uint32_t function_bytes[INLAY_TRACE_DEPTH];
    const char *spans[INLAY_TRACE_DEPTH];         /* NULL where unknown */
    uint32_t span_bytes[INLAY_TRACE_DEPTH];
} inlay_error_t;

/* Element types; the numbers are those of the container. Elements of a tensor of strings are numbers
 * of 64 bits that stand for strings, equal ones for equal strings: positions in the table of strings
 * of the program, and beyond it what the embedding program likes. */
typedef enum inlay_dtype {
    INLAY_BOOL, INLAY_I8, INLAY_I16, INLAY_I32, INLAY_I64, INLAY_U8, INLAY_U16, INLAY_U32,
    INLAY_U64, INLAY_F16, INLAY_BF16, INLAY_F32, INLAY_F64, INLAY_STRING, INLAY_DTYPES
} inlay_dtype_t;

#define INLAY_MAX_RANK 16
#define INLAY_MAX_SYMBOLS 256 /* that one dim may see */
#define INLAY_MAX_NESTING 16  /* of lists, options and tuples in a signature */

/* A row-major contiguous tensor of the embedding program. */
typedef struct inlay_tensor {
    void *data;
    uint32_t dtype;
    uint32_t rank;
    const int64_t *dims;
} inlay_tensor_t;

/* A tensor that a call returns, with the memory it lives in: give it back with
 * `inlay_result_release` when the last user of `data` is done. */
typedef struct inlay_result {
    void *data;
    uint32_t dtype;
    uint32_t rank;
    int64_t dims[INLAY_MAX_RANK];
    void *block;
    size_t block_bytes;
    size_t block_align;
    size_t room; /* bytes that are there from `data` on */
} inlay_result_t;

/* A step of a native kernel: 0, or the number of the assertion that does not hold. */
typedef int64_t (*inlay_phase_t)(void *const *buffers, const int64_t *ints, int64_t part,
                                 int64_t parts);

/* One part of parallel work. */
typedef void (*inlay_part_t)(void *argument, int64_t part);

/* Something that workers of the host run: the activation that has commands ready. Made by the core;
 * the fields belong to the host. */
typedef struct inlay_job {
    void (*run)(struct inlay_job *job);
    struct inlay_job *next;
    int is_queued, running;
} inlay_job_t;

/* What a host with threads offers. All functions are called by any thread; `user` is the host's. */
typedef struct inlay_threads {
    void *(*open)(void *user); /* a lock, or NULL where there is no memory */
    void (*close)(void *user, void *lock);
    void (*lock)(void *user, void *lock);
    void (*unlock)(void *user, void *lock);
    /* With the lock taken: give it up, help others or sleep until `wake`, at most `ns`; take it
     * again. May return early. `wake` is for all that wait. */
    void (*wait)(void *user, void *lock, int64_t ns);
    void (*wake)(void *user, void *lock);
    /* Let a worker call job->run(job) soon, if there is one; a job that is queued stays so. */
    void (*offer)(void *user, inlay_job_t *job);
    /* Return when the job is not queued and no worker runs it. */
    void (*withdraw)(void *user, inlay_job_t *job);
} inlay_threads_t;

/* What the host may be told of a call. Times are those of host.now. */
typedef enum inlay_event_kind {
    INLAY_EVENT_RUN,   /* a kernel or copy ran, here or on a device; `value`: predicted ns, or -1 */
    INLAY_EVENT_WAIT,  /* the thread of the call waited */
    INLAY_EVENT_CALL,  /* a function ran from outside, to its end */
    INLAY_EVENT_NEEDS, /* command `number` was issued, and waits for `other` */
    INLAY_EVENT_MEMORY /* bytes of tensors of the call, `value`, in one memory; `queue`: the unit */
} inlay_event_kind_t;

typedef struct inlay_event {
    uint32_t kind;
    uint32_t name_bytes;
    const char *name;     /* of the kernel or function; lives as long as the module */
    const void *call;     /* which activation */
    uint64_t number;      /* of the command, in its activation */
    uint64_t other;
    int64_t begin, end;   /* ns */
    int64_t value;
    const char *device;   /* whose queue ran it, as the file names it; NULL for this thread */
    uint32_t device_bytes, queue;
} inlay_event_t;

/* What the embedding program provides. `user` is passed to each. Functions marked optional may
 * be NULL. All of them are called by any thread that runs an activation. */
typedef struct inlay_host {
    void *user;
    /* Return `bytes` at a multiple of `align` (a power of two), or NULL. */
    void *(*allocate)(void *user, size_t bytes, size_t align);
    void (*release)(void *user, void *memory, size_t bytes, size_t align);
    /* Optional: run part(argument, p) for all 0 <= p < parts, in any order and concurrently, and
     * return when all have ended. Without it they run one after the other. */
    void (*parallel)(void *user, inlay_part_t part, void *argument, int64_t parts);
    /* Optional: run a kernel whose body is a callback. A failure explains itself in `message`. */
    inlay_status_t (*kernel)(void *user, uint32_t kernel, const inlay_tensor_t *tensors,
                             uint32_t n_tensors, const int64_t *ints, uint32_t n_ints,
                             char *message, size_t message_bytes);
    /* Optional: find a C function by name; NULL where there is none. For a kernel whose body is a
     * function over tensors it is an `inlay_extern_t` (inlay_extern.h), cast to this type. */
    inlay_phase_t (*symbol)(void *user, const char *name, size_t name_bytes);
    /* Optional: asked now and then by the thread that runs the call; a value other than 0 ends
     * the run, INLAY_DEADLINE as late, any other as cancelled. */
    int (*poll)(void *user);
    /* Optional: in how many ns a thread that waits is to ask `poll` again; asked by that thread. */
    int64_t (*poll_in)(void *user);
    /* Optional: without them a call in parallel mode runs its commands itself when it waits. */
    const inlay_threads_t *threads;
    /* Optional: a clock in ns; and, to watch calls with it, what happened, by any thread. */
    int64_t (*now)(void *user);
    void (*event)(void *user, const inlay_event_t *event);
    /* Optional: begin a kernel whose body is a callback, on a device or in another process, and return INLAY_PENDING; then
     * `inlay_complete` is called once, by any thread, maybe before this returns. Tensors and integers
     * stay until then. Any other status says that it has ended. Calls in parallel mode use it, the
     * others `kernel`. */
    inlay_status_t (*start)(void *user, void *ticket, uint32_t kernel,
                            const inlay_tensor_t *tensors, uint32_t n_tensors, const int64_t *ints,
                            uint32_t n_ints, char *message, size_t message_bytes);
    /* Optional: the driver of devices of a name; NULL where there is none. See inlay_driver.h. */
    const struct inlay_driver *(*driver)(void *user, const char *name, size_t name_bytes);
    /* Optional: ask the system for what native code needs of it before it uses a feature of the
     * processor, as tiles of x86; 0 where it refuses. Asked when a file with such code is opened, which
     * fails without it. `inlay_posix_permit` (platform/permission.h) does it. */
    int (*permit)(void *user, const char *feature, size_t feature_bytes);
    /* Optional: give `bytes` at `data`, a part of an allocation, memory of their own, without copying whole
     * pages; return where they are then, or NULL. `block` and `block_bytes` become what `release` takes, with
     * the alignment INLAY_LIFTED. What stays behind belongs to the allocation and has no defined contents.
     * Asked for results of INLAY_LIFT_BYTES or more that are made in the block of a program; without it they
     * are copied. `inlay_posix_lift` (platform/posix.h) does it. */
    void *(*lift)(void *user, void *data, size_t bytes, void **block, size_t *block_bytes);
} inlay_host_t;

#define INLAY_LIFTED 0
/* The alignment of memory in which state grows, and of nothing else: it lives as long as somebody's session, so
 * a host need not keep it for later calls when it comes back. */
#define INLAY_STATE_ALIGN 128
#define INLAY_LIFT_BYTES 65536

typedef struct inlay_module inlay_module_t;
typedef struct inlay_activation inlay_activation_t;
typedef struct inlay_batcher inlay_batcher_t;

/* ------------------------------------------------------------------------------- containers */

/* Find a section ("IMAG", ...) of a file in memory. Checks header and table, not contents. */
inlay_status_t inlay_container_section(const uint8_t *data, size_t bytes, const char *id,
                                       size_t *offset, size_t *section_bytes,
                                       inlay_error_t *error);

/* Load and verify. `data` must stay where it is, aligned to 8, until the module is closed.
 * `image` is an executable mapping of section IMAG, or NULL where there is no native code.
 * With `check_constants` the digest of the constants is computed too. */
inlay_status_t inlay_module_open(const uint8_t *data, size_t bytes, const void *image,
                                 int check_constants, const inlay_host_t *host,
                                 inlay_module_t **module, inlay_error_t *error);
void inlay_module_close(inlay_module_t *module);
/* Whether a device of the module is lost (INLAY_LOST, INLAY_LIMIT): calls that need it fail until the
 * module is opened again. Any thread. */
int inlay_module_is_lost(const inlay_module_t *module);

/* Return the index of an entry, or -1. */
int32_t inlay_module_entry(const inlay_module_t *module, const char *name);
/* How many values an entry takes and gives. */
void inlay_module_arity(const inlay_module_t *module, uint32_t entry, uint32_t *inputs,
                        uint32_t *outputs);
/* Element type of an input; INLAY_DTYPES where there is none. */
uint32_t inlay_module_input_dtype(const inlay_module_t *module, uint32_t entry, uint32_t input);

/* ------------------------------------------------------------------------------------ calls */

/* How a call goes through its program. All give the same results and the same failures. */
typedef enum inlay_mode {
    INLAY_SEQUENTIAL, /* one instruction after the other, nothing pending */
    INLAY_PARALLEL,   /* kernels are issued and run by workers when their inputs are there */
    INLAY_REPLAY      /* one thread; everything is put off as long as it can be, then `seed` picks */
} inlay_mode_t;

typedef struct inlay_config {
    size_t stack_bytes;    /* limit of the machine's stack; 0 for the default */
    size_t cache_bytes;    /* freed tensor memory that is kept for reuse; 0 for the default */
    int64_t parts;         /* parts of parallel work; at least 1 */
    int64_t hand_off_ns;   /* kernels predicted to be shorter run in one part */
    uint32_t mode;         /* inlay_mode_t */
    uint32_t callbacks_anywhere; /* whether workers may call host.kernel; else only the caller */
    uint64_t seed;         /* of INLAY_REPLAY */
    uint32_t most_commands; /* in flight; 0 for the default */
    uint32_t most_tasks;   /* calls that are suspended; 0 for the default */
    size_t held_bytes;     /* dead memory that commands in flight still use; 0 for the default */
    uint32_t chooses;      /* of INLAY_PARALLEL: calls run as in INLAY_SEQUENTIAL where those of the
                              same entry were faster so; needs host.now */
    uint32_t races;        /* whether accesses are compared: two that do not follow each other, or a
                              kernel that writes what it is said to read, end the call (INLAY_RACE) */
    uint32_t checks;       /* whether launches hold tensors against what code may touch */
    uint32_t own_batches;  /* with at least so many calls for each part, and until a third fewer are left,
                              threads that share a batcher run batches of their own and do not wait for
                              each other; 0 for never */
    inlay_batcher_t *batcher; /* of activations whose calls run kernels together; NULL for none */
} inlay_config_t;

/* What activations of a module share whose calls run kernels of the same weights together; NULL where the
 * module has no such kernels or the host no threads. Only calls in parallel mode do, and none with callbacks
 * or under the race detector. It is destroyed behind all of them. */
inlay_status_t inlay_batcher_create(const inlay_module_t *module, const inlay_host_t *host,
                                    inlay_batcher_t **batcher);
void inlay_batcher_destroy(inlay_batcher_t *batcher);

inlay_status_t inlay_activation_create(const inlay_module_t *module, const inlay_host_t *host,
                                       const inlay_config_t *config,
                                       inlay_activation_t **activation);
void inlay_activation_destroy(inlay_activation_t *activation);

/* Check inputs against the signature of an entry: dtypes, ranks, each dim, each requirement. */
inlay_status_t inlay_bind(const inlay_module_t *module, uint32_t entry,
                          const inlay_tensor_t *inputs, uint32_t n_inputs, inlay_error_t *error);

/* Bind, then run. Inputs are read in place. On success all `results` are filled, and none of
 * them shares memory with an input, a constant or another one; on failure none is. The activation
 * is ready for the next call either way. */
inlay_status_t inlay_call(inlay_activation_t *activation, uint32_t entry,
                          const inlay_tensor_t *inputs, uint32_t n_inputs,
                          inlay_result_t *results, uint32_t n_results, inlay_error_t *error);

/* State: an input that a call may make longer where it is, and the result that it becomes. `room` is how
 * many bytes the memory at the data of the input has. A spare input may be written over instead: what is
 * there after a failure is nothing to count on. */
typedef struct inlay_state {
    uint32_t input, result;
    size_t room;
    uint32_t is_spare;
} inlay_state_t;

/* Like `inlay_call`, with state. The call may write what lies behind such an input, and never the input
 * itself unless it is spare: after a failure all else is as it was. A result that is its input and more behind it has the same
 * `data`, no `block`, and the room that there was: it lives where the input does. Any other has memory of
 * its own, with room where it grew. No two calls at a time may have state in the same memory. */
inlay_status_t inlay_call_state(inlay_activation_t *activation, uint32_t entry,
                                const inlay_tensor_t *inputs, uint32_t n_inputs,
                                const inlay_state_t *states, uint32_t n_states,
                                inlay_result_t *results, uint32_t n_results, inlay_error_t *error);

/* What a call returns where lists, options or tuples are among its results. */
typedef struct inlay_values {
    inlay_result_t *tensors;
    int64_t *counts;
    uint32_t n_tensors, n_counts;
} inlay_values_t;

/* Like `inlay_call`, for entries that take or give structure. A value is written as its tensors and
 * its counts. First the tensors in fixed places: those of inputs that are tensors, and of fields of
 * tuples. Then each list and option, in order: its count (of an option 0 or 1), and for each of
 * its elements the same again, tensors first. Give the values back with `inlay_values_release`,
 * after taking over the results in `tensors` that are still of use (set their `block` to NULL). */
inlay_status_t inlay_call_structured(inlay_activation_t *activation, uint32_t entry,
                                     const inlay_tensor_t *tensors, uint32_t n_tensors,
                                     const int64_t *counts, uint32_t n_counts,
                                     inlay_values_t *results, inlay_error_t *error);
void inlay_values_release(const inlay_host_t *host, inlay_values_t *values);

/* A kernel that host.start began has ended; `message` may be NULL. */
void inlay_complete(void *ticket, inlay_status_t status, const char *message);

/* Give the memory of a result back; any thread, at any time while the host is alive. */
void inlay_result_release(const inlay_host_t *host, inlay_result_t *result);

/* Bytes of tensor memory that an activation keeps between calls, and how to give them back. */
size_t inlay_activation_kept(const inlay_activation_t *activation);
void inlay_activation_drop(inlay_activation_t *activation);
/* What the tensors of the last call of an activation took. */
typedef struct inlay_usage {
    size_t peak_bytes;      /* in the host's memory at most at once: storages, scratch memory of kernels,
                               and results that were copied; as they are long, not rounded up. Where other
                               threads run calls of the call, no more than this */
    uint64_t storages;      /* with bytes of their own, in any memory */
    uint64_t copied_bytes;  /* by instructions, and where results left: not by kernels */
    const size_t *memories; /* of each memory of the module, what devices held there at most at once;
                               NULL without devices */
    uint32_t n_memories;    /* how many `memories` has; 0 where it is NULL */
} inlay_usage_t;
void inlay_activation_usage(const inlay_activation_t *activation, inlay_usage_t *usage);
/* Objects that are alive in an activation: 0 between calls, for tests. */
size_t inlay_activation_live(const inlay_activation_t *activation);
/* Instructions executed since the activation was made (INLAY_COUNT_INSTRUCTIONS builds). */
uint64_t inlay_activation_steps(const inlay_activation_t *activation);

#ifdef __cplusplus
}
#endif
#endif
