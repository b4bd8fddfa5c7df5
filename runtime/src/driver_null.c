/* The driver that does nothing: see inlay_driver.h. To write one, begin with a copy of this file. */
#include "inlay_driver.h"

#include <string.h>

enum { QUEUES = 2 };

struct inlay_device {
    const inlay_host_t *host;
    uint64_t numbers[QUEUES]; /* of the last request of each queue */
};

static inlay_status_t null_open(const inlay_host_t *host, const char *options,
                                inlay_device_t **device, char *message, size_t message_bytes)
{
    inlay_device_t *made;
    (void)message, (void)message_bytes;
    if (options && options[0]) return INLAY_BAD_ARGUMENT;
    made = host->allocate(host->user, sizeof *made, sizeof(void *));
    if (!made) return INLAY_OUT_OF_MEMORY;
    memset(made, 0, sizeof *made);
    made->host = host;
    *device = made;
    return INLAY_OK;
}

static void null_close(inlay_device_t *device)
{
    device->host->release(device->host->user, device, sizeof *device, sizeof(void *));
}

static void null_facts(inlay_device_t *device, inlay_device_facts_t *facts)
{
    (void)device;
    memset(facts, 0, sizeof *facts);
    memcpy(facts->name, "null", sizeof "null");
    facts->units = 1;
    facts->queues_per_unit = QUEUES;
    facts->largest_bytes = SIZE_MAX;
    facts->has_f64 = 1;
    facts->compute_units = 1;
}

/* Programs and memory are the device itself: nothing looks at them. */
static inlay_status_t null_load(inlay_device_t *device, const void *image, size_t bytes,
                                inlay_program_t **program, char *message, size_t message_bytes)
{
    (void)image, (void)bytes, (void)message, (void)message_bytes;
    *program = (inlay_program_t *)(void *)device;
    return INLAY_OK;
}

static void null_unload(inlay_device_t *device, inlay_program_t *program)
{
    (void)device, (void)program;
}

static int32_t null_find(inlay_device_t *device, inlay_program_t *program, const char *name,
                         uint32_t n_phases)
{
    (void)device, (void)program, (void)name, (void)n_phases;
    return 0;
}

static inlay_status_t null_allocate(inlay_device_t *device, uint32_t unit, size_t bytes,
                                    inlay_memory_t **memory, char *message, size_t message_bytes)
{
    (void)bytes, (void)message, (void)message_bytes;
    if (unit) return INLAY_BAD_ARGUMENT;
    *memory = (inlay_memory_t *)(void *)device;
    return INLAY_OK;
}

static void null_release(inlay_device_t *device, inlay_memory_t *memory)
{
    (void)device, (void)memory;
}

static inlay_status_t null_start(inlay_device_t *device, const inlay_request_t *request,
                                 inlay_ticket_t *ticket, char *message, size_t message_bytes)
{
    (void)message, (void)message_bytes;
    if (request->queue >= QUEUES) return INLAY_BAD_ARGUMENT;
    ticket->queue = request->queue;
    ticket->number = ++device->numbers[request->queue];
    request->done(request->argument, INLAY_OK, 0, "");
    return INLAY_OK;
}

/* Every request has ended when it was started. */
static void null_wait(inlay_device_t *device, inlay_ticket_t ticket)
{
    (void)device, (void)ticket;
}

const inlay_driver_t inlay_driver_null = {
    "null",        null_open,    null_close,   null_facts, null_load, null_unload, null_find,
    null_allocate, null_release, null_start, null_wait, NULL, NULL,
};
