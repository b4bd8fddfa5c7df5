/* Devices of a module: opened when it is, and used by commands. See inlay_driver.h.
 *
 * A storage in the memory of a device has no address: `data` of its tensors counts from DEVICE_BASE,
 * so that ranges and views work as for any other storage, and nothing may follow it. */
#ifndef INLAY_DEVICE_H
#define INLAY_DEVICE_H

#include "gate.h"
#include "inlay_driver.h"

#define DEVICE_BASE ((uint8_t *)(uintptr_t)((uint64_t)1 << 46))
#define MOST_PHASES 16
#define MOST_UNITS 8

struct inlay_module;
struct inlay_activation;
struct inlay_command;

/* A memory space: where the bytes of a memory are, the host or a unit of a device. */
typedef struct inlay_space {
    const inlay_driver_t *driver; /* NULL: in the host */
    inlay_device_t *device;
    inlay_program_t *program;
    const struct inlay_unopened *record;
    uint32_t memory;              /* its number in the module */
    uint32_t unit, queues;        /* queues: of each unit */
    inlay_gate_t *gate;           /* of hardware that other devices have too; else NULL */
} inlay_space_t;

/* A device as the file describes it. */
typedef struct inlay_unopened {
    const char *name, *driver, *options; /* not terminated */
    uint32_t name_bytes, driver_bytes, options_bytes;
    const uint32_t *memories, *hardware; /* hardware: for each memory, a number; 0: its own */
    uint32_t n_memories;
    const uint8_t *image;
    size_t image_bytes;
    inlay_host_kernel_t *table; /* of native code, made when it is opened; NULL for none */
    size_t table_bytes;
} inlay_unopened_t;

/* Open all devices, load their images, find their kernels, put constants into their memories. */
inlay_status_t inlay_devices_open(struct inlay_module *module, inlay_error_t *error);
void inlay_devices_close(struct inlay_module *module);

/* Run a kernel of a device, or a copy, and wait for it. Any thread. */
inlay_status_t inlay_device_run(const struct inlay_activation *m, struct inlay_command *command,
                                inlay_error_t *error);
/* Start it; it ends by `done`, unless this fails. */
inlay_status_t inlay_device_start(const struct inlay_activation *m, struct inlay_command *command,
                                  inlay_done_t done, void *argument, inlay_error_t *error);
/* Fill in an error as a driver told it. */
void inlay_device_explain(const struct inlay_activation *m, const struct inlay_command *command,
                          inlay_status_t status, int64_t answer, const char *message,
                          inlay_error_t *error);

#endif
