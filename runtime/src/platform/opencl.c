/* The driver of OpenCL devices: see inlay_driver.h.
 *
 * A device is one context; its units are the sub-devices that it is divided into, or the whole. Each
 * unit has two queues that work in order. A request becomes one or more commands of its queue, and
 * is over when the last has ended; until then it is in the list of the queue, where later requests
 * find the event of a ticket they wait for. Events tell their end on threads of the OpenCL library.
 *
 * One lock guards the lists, and arguments of kernels between setting and enqueuing them. No call
 * of the library that may tell an event is made under it. */
#define _POSIX_C_SOURCE 200809L
#include "platform/opencl_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- opening */

typedef struct options {
    uint64_t type;
    unsigned index, units;
} options_t;

/* Read `key=value` words; false where one is not known. */
static int read_options(options_t *options, const char *at)
{
    static const struct {
        const char *word;
        uint64_t type;
    } types[] = {{"type=any", 0},
                 {"type=cpu", CL_DEVICE_TYPE_CPU},
                 {"type=gpu", CL_DEVICE_TYPE_GPU},
                 {"type=accelerator", CL_DEVICE_TYPE_ACCELERATOR}};
    options->type = 0;
    options->index = 0;
    options->units = 1;
    while (at && *at) {
        const size_t size = strcspn(at, " ");
        size_t i;
        int used = 0, known = 0;
        for (i = 0; i < sizeof types / sizeof types[0]; i++)
            if (strlen(types[i].word) == size && strncmp(at, types[i].word, size) == 0) {
                options->type = types[i].type;
                known = 1;
            }
        if (!known && sscanf(at, "index=%u%n", &options->index, &used) == 1)
            known = (size_t)used == size;
        if (!known && sscanf(at, "units=%u%n", &options->units, &used) == 1)
            known = (size_t)used == size;
        if (!known) return 0;
        at += size;
        at += strspn(at, " ");
    }
    return options->units >= 1 && options->units <= MOST_UNITS;
}

static inlay_status_t find_library(inlay_device_t *device, char *message, size_t bytes)
{
    static const char *const names[] = {
        "libOpenCL.so.1", "libOpenCL.so", "/System/Library/Frameworks/OpenCL.framework/OpenCL"};
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0] && !device->library; i++)
        device->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!device->library) {
        if (bytes)
            snprintf(message, bytes, "found no libOpenCL.so.1; install a driver of OpenCL devices "
                     "(Debian: pocl-opencl-icd)");
        return INLAY_ABSENT;
    }
#define INLAY_CL_FIND(name, result, parameters)                                                    \
    {                                                                                              \
        void *found = dlsym(device->library, "cl" #name);                                          \
        if (!found) {                                                                              \
            if (bytes) snprintf(message, bytes, "the OpenCL library has no cl" #name);             \
            return INLAY_ABSENT;                                                                   \
        }                                                                                          \
        memcpy(&device->cl.name, &found, sizeof found);                                            \
    }
    INLAY_CL_FUNCTIONS(INLAY_CL_FIND)
#undef INLAY_CL_FIND
    return INLAY_OK;
}

/* Find the device that the options name. Without a type: GPUs first, then CPUs, then others. */
static inlay_status_t find_device(inlay_device_t *device, const options_t *options, char *message,
                                  size_t bytes)
{
    static const uint64_t every[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU,
                                     CL_DEVICE_TYPE_ACCELERATOR};
    const uint64_t *types = options->type ? &options->type : every;
    const size_t n_types = options->type ? 1 : sizeof every / sizeof every[0];
    cl_platform platforms[16];
    uint32_t n_platforms = 0, p;
    unsigned left = options->index, seen = 0;
    size_t t;
    if (device->cl.GetPlatformIDs(16, platforms, &n_platforms) != CL_SUCCESS) n_platforms = 0;
    if (n_platforms > 16) n_platforms = 16;
    for (t = 0; t < n_types; t++)
        for (p = 0; p < n_platforms; p++) {
            cl_device found[16];
            uint32_t n = 0;
            if (device->cl.GetDeviceIDs(platforms[p], types[t], 16, found, &n) != CL_SUCCESS)
                continue;
            if (n > 16) n = 16;
            if (left < n) {
                device->whole = found[left];
                return INLAY_OK;
            }
            left -= n;
            seen += n;
        }
    if (bytes)
        snprintf(message, bytes, "found %u OpenCL devices of that type on %u platforms, needed %u",
                 seen, (unsigned)n_platforms, options->index + 1);
    return INLAY_ABSENT;
}

/* The sub-devices of a device are made once in a process and never released. A queue is not said to
 * keep its device, and a thread of the library may look at the device of an event after it has told
 * the event's end (POCL 3.1 does): nothing says when that is over. */
typedef struct division {
    struct division *next;
    cl_device whole, units[MOST_UNITS];
    unsigned n_units;
} division_t;

static pthread_mutex_t divisions_lock = PTHREAD_MUTEX_INITIALIZER;
static division_t *divisions;

/* Divide a device equally, into `units` parts; NULL where it can't. Under the lock. */
static const division_t *make_division(const cl_api *cl, cl_device whole, unsigned units,
                                       uint32_t compute_units)
{
    intptr_t how[3] = {CL_DEVICE_PARTITION_EQUALLY, 0, 0};
    uint32_t n = 0;
    division_t *made;
    how[1] = (intptr_t)(compute_units / units);
    if (!how[1] || cl->CreateSubDevices(whole, how, 0, NULL, &n) != CL_SUCCESS) return NULL;
    if (n < units || n > MOST_UNITS || !(made = calloc(1, sizeof *made))) return NULL;
    if (cl->CreateSubDevices(whole, how, n, made->units, NULL) != CL_SUCCESS) {
        free(made);
        return NULL;
    }
    made->whole = whole;
    made->n_units = units;
    made->next = divisions;
    return divisions = made;
}

static inlay_status_t divide(inlay_device_t *device, unsigned units, char *message, size_t bytes)
{
    const division_t *found;
    uint32_t all = 0;
    device->facts.units = units;
    if (units == 1) {
        device->units[0] = device->whole;
        return INLAY_OK;
    }
    device->cl.GetDeviceInfo(device->whole, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof all, &all, NULL);
    pthread_mutex_lock(&divisions_lock);
    found = divisions;
    while (found && (found->whole != device->whole || found->n_units != units)) found = found->next;
    if (!found) found = make_division(&device->cl, device->whole, units, all);
    pthread_mutex_unlock(&divisions_lock);
    if (found) {
        memcpy(device->units, found->units, units * sizeof *device->units);
        return INLAY_OK;
    }
    if (bytes)
        snprintf(message, bytes,
                 "the OpenCL device, of %u compute units, does not let itself be divided into %u",
                 (unsigned)all, units);
    return INLAY_ABSENT;
}

static void learn(inlay_device_t *device)
{
    inlay_device_facts_t *facts = &device->facts;
    const cl_device one = device->units[0];
    uint64_t memory = 0, largest = 0, single = 0, doubles = 0, halves = 0, type = 0;
    uint32_t compute_units = 1, mhz = 0, unified = 0;
    char name[256] = "";
    device->cl.GetDeviceInfo(one, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_SINGLE_FP_CONFIG, sizeof single, &single, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof doubles, &doubles, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof compute_units,
                             &compute_units, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_HALF_FP_CONFIG, sizeof halves, &halves, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_MAX_CLOCK_FREQUENCY, sizeof mhz, &mhz, NULL);
    device->cl.GetDeviceInfo(one, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified, NULL);
    device->is_cpu = type == CL_DEVICE_TYPE_CPU;
    snprintf(facts->name, sizeof facts->name, "%.63s", name);
    facts->queues_per_unit = QUEUES;
    facts->memory_bytes = memory;
    facts->largest_bytes = largest;
    facts->has_f64 = doubles != 0;
    facts->compute_units = compute_units;
    snprintf(facts->offers, sizeof facts->offers, "opencl,type=%s,mhz=%u,unified=%s,f16=%s,f64=%s",
             type & CL_DEVICE_TYPE_GPU ? "gpu" : device->is_cpu ? "cpu" : "accelerator",
             (unsigned)mhz, unified ? "yes" : "no", halves ? "yes" : "no", doubles ? "yes" : "no");
    device->rounds_exactly = (single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
}

/* Give back what `open` made, all or the first part of it. */
static void dismantle(inlay_device_t *device)
{
    uint32_t i;
    for (i = 0; i < MOST_UNITS * QUEUES; i++)
        if (device->lanes[i].queue) device->cl.ReleaseCommandQueue(device->lanes[i].queue);
    if (device->context) device->cl.ReleaseContext(device->context);
    /* The library stays loaded: its threads may be about to return into it. */
    pthread_cond_destroy(&device->landed);
    pthread_mutex_destroy(&device->lock);
    inlay_give(device->host, device, sizeof *device);
}

/* Learn how far the clock of the device is from the host's: by a command of which both know when it
 * was enqueued. Without that its events have no times that mean anything here. */
static void compare_clocks(inlay_device_t *device)
{
    const inlay_host_t *host = device->host;
    cl_event event = NULL;
    uint64_t queued = 0;
    const int64_t before = host->now(host->user);
    int64_t after;
    if (device->cl.EnqueueMarkerWithWaitList(device->lanes[0].queue, 0, NULL, &event) != CL_SUCCESS)
        return;
    after = host->now(host->user);
    if (device->cl.Finish(device->lanes[0].queue) == CL_SUCCESS &&
        device->cl.GetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued,
                                         NULL) == CL_SUCCESS) {
        device->has_times = 1;
        device->skew = before + (after - before) / 2 - (int64_t)queued;
    }
    device->cl.ReleaseEvent(event);
}

static inlay_status_t set_up(inlay_device_t *device, const options_t *options, char *message,
                             size_t bytes)
{
    inlay_status_t status = find_library(device, message, bytes);
    const uint64_t watched = device->host->event && device->host->now ? CL_QUEUE_PROFILING_ENABLE : 0;
    cl_status answer = CL_SUCCESS;
    uint32_t i;
    if (status == INLAY_OK) status = find_device(device, options, message, bytes);
    if (status == INLAY_OK) status = divide(device, options->units, message, bytes);
    if (status != INLAY_OK) return status;
    learn(device);
    device->context =
        device->cl.CreateContext(NULL, options->units, device->units, NULL, NULL, &answer);
    if (!device->context) return inlay_cl_failed(answer, "clCreateContext", message, bytes);
    for (i = 0; i < options->units * QUEUES; i++) {
        device->lanes[i].queue = device->cl.CreateCommandQueue(
            device->context, device->units[i / QUEUES], watched, &answer);
        if (!device->lanes[i].queue)
            return inlay_cl_failed(answer, "clCreateCommandQueue", message, bytes);
    }
    if (watched) compare_clocks(device);
    return INLAY_OK;
}

static inlay_status_t opencl_open(const inlay_host_t *host, const char *words,
                                  inlay_device_t **device, char *message, size_t bytes)
{
    inlay_device_t *made;
    inlay_status_t status;
    options_t options;
    if (!read_options(&options, words))
        return inlay_cl_refuse("options are type=any|cpu|gpu|accelerator, index=N, units=N (1 to 8)",
                      message, bytes);
    made = inlay_take(host, sizeof *made);
    if (!made) return INLAY_OUT_OF_MEMORY;
    made->host = host;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->landed, NULL);
    status = set_up(made, &options, message, bytes);
    if (status == INLAY_OK)
        *device = made;
    else
        dismantle(made);
    return status;
}

static void opencl_close(inlay_device_t *device)
{
    uint32_t i;
    for (i = 0; i < device->facts.units * QUEUES; i++)
        device->cl.Finish(device->lanes[i].queue);
    pthread_mutex_lock(&device->lock);
    while (device->in_flight) pthread_cond_wait(&device->landed, &device->lock);
    pthread_mutex_unlock(&device->lock);
    dismantle(device);
}

static void opencl_facts(inlay_device_t *device, inlay_device_facts_t *facts)
{
    *facts = device->facts;
}

/* ------------------------------------------------------------------------------------ programs */

static inlay_status_t opencl_load(inlay_device_t *device, const void *image, size_t size,
                                  inlay_program_t **program, char *message, size_t bytes)
{
    const char *text = image;
    /* Warnings are of no use to who runs a program. */
    const char *flags = device->rounds_exactly ? "-w -cl-fp32-correctly-rounded-divide-sqrt" : "-w";
    inlay_program_t *made = inlay_take(device->host, sizeof *made);
    cl_status status = CL_SUCCESS;
    if (!made) return INLAY_OUT_OF_MEMORY;
    made->object =
        device->cl.CreateProgramWithSource(device->context, 1, &text, &size, &status);
    if (made->object) {
        status = device->cl.BuildProgram(made->object, device->facts.units, device->units, flags,
                                         NULL, NULL);
        if (status == CL_SUCCESS) {
            *program = made;
            return INLAY_OK;
        }
        if (bytes) {
            size_t used = 0;
            /* Libraries refuse to give a part of a log, so it is asked for whole. */
            device->cl.GetProgramBuildInfo(made->object, device->units[0], CL_PROGRAM_BUILD_LOG, 0,
                                           NULL, &used);
            if (used) {
                char *log = inlay_take(device->host, used);
                if (log)
                    device->cl.GetProgramBuildInfo(made->object, device->units[0],
                                                   CL_PROGRAM_BUILD_LOG, used, log, NULL);
                snprintf(message, bytes, "%s", log ? log : "");
                if (log) inlay_give(device->host, log, used);
            }
        }
        device->cl.ReleaseProgram(made->object);
    }
    if (bytes && !message[0]) inlay_cl_failed(status, "clBuildProgram", message, bytes);
    inlay_give(device->host, made, sizeof *made);
    return inlay_cl_status(status) == INLAY_OUT_OF_MEMORY ? INLAY_OUT_OF_MEMORY : INLAY_BUILD_FAILED;
}

static void drop_kernel(inlay_device_t *device, kernel_t *kernel)
{
    uint32_t i;
    for (i = 0; i < kernel->n_phases; i++)
        if (kernel->phases[i]) device->cl.ReleaseKernel(kernel->phases[i]);
    inlay_give(device->host, kernel, sizeof *kernel);
}

static void opencl_unload(inlay_device_t *device, inlay_program_t *program)
{
    kernel_t *kernel = program->kernels;
    while (kernel) {
        kernel_t *next = kernel->next;
        drop_kernel(device, kernel);
        kernel = next;
    }
    device->cl.ReleaseProgram(program->object);
    inlay_give(device->host, program, sizeof *program);
}

static kernel_t *make_kernel(inlay_device_t *device, inlay_program_t *program, const char *name,
                             uint32_t n_phases)
{
    kernel_t *made = inlay_take(device->host, sizeof *made);
    uint32_t i;
    if (!made) return NULL;
    snprintf(made->name, sizeof made->name, "%s", name);
    made->n_phases = n_phases;
    for (i = 0; i < n_phases; i++) {
        char symbol[sizeof made->name + 16];
        cl_status status = CL_SUCCESS;
        snprintf(symbol, sizeof symbol, "%s_phase%u", name, (unsigned)i);
        made->phases[i] = device->cl.CreateKernel(program->object, symbol, &status);
        if (!made->phases[i]) {
            drop_kernel(device, made);
            return NULL;
        }
        device->cl.GetKernelInfo(made->phases[i], CL_KERNEL_NUM_ARGS, sizeof(uint32_t),
                                 &made->n_arguments[i], NULL);
        device->cl.GetKernelWorkGroupInfo(made->phases[i], device->units[0],
                                          CL_KERNEL_WORK_GROUP_SIZE, sizeof(size_t),
                                          &made->group[i], NULL);
    }
    return made;
}

static int32_t opencl_find(inlay_device_t *device, inlay_program_t *program, const char *name,
                           uint32_t n_phases)
{
    kernel_t *kernel;
    if (!n_phases || n_phases > MOST_PHASES || strlen(name) >= sizeof kernel->name) return -1;
    pthread_mutex_lock(&device->lock);
    for (kernel = program->kernels; kernel; kernel = kernel->next)
        if (strcmp(kernel->name, name) == 0 && kernel->n_phases == n_phases) break;
    if (!kernel) {
        kernel = make_kernel(device, program, name, n_phases);
        if (kernel) {
            kernel->number = program->n_kernels++;
            kernel->next = program->kernels;
            program->kernels = kernel;
        }
    }
    pthread_mutex_unlock(&device->lock);
    return kernel ? (int32_t)kernel->number : -1;
}

/* -------------------------------------------------------------------------------------- memory */

static inlay_status_t opencl_allocate(inlay_device_t *device, uint32_t unit, size_t size,
                                      inlay_memory_t **memory, char *message, size_t bytes)
{
    cl_status status = CL_SUCCESS;
    inlay_memory_t *made;
    if (unit >= device->facts.units)
        return inlay_cl_refuse("found a unit that the device has not", message, bytes);
    made = inlay_take(device->host, sizeof *made);
    if (!made) return INLAY_OUT_OF_MEMORY;
    made->bytes = size;
    made->object = device->cl.CreateBuffer(device->context, CL_MEM_READ_WRITE, size ? size : 1,
                                           NULL, &status);
    if (!made->object) {
        inlay_give(device->host, made, sizeof *made);
        return inlay_cl_failed(status, "clCreateBuffer", message, bytes);
    }
    *memory = made;
    return INLAY_OK;
}

/* The library keeps an object while commands use it. */
static void opencl_release(inlay_device_t *device, inlay_memory_t *memory)
{
    device->cl.ReleaseMemObject(memory->object);
    inlay_give(device->host, memory, sizeof *memory);
}

const inlay_driver_t inlay_driver_opencl = {
    "opencl",        opencl_open,    opencl_close, opencl_facts, opencl_load, opencl_unload,
    opencl_find, opencl_allocate, opencl_release, inlay_cl_start, inlay_cl_wait, NULL,
    NULL,
};
