#include "machine.h"

inlay_status_t inlay_gates_open(inlay_module_t *module)
{
    const inlay_threads_t *threads = module->host->threads;
    uint32_t i, j;
    module->gates = inlay_arena_take(&module->arena, module->n_memories, sizeof *module->gates);
    if (!module->gates) return INLAY_OUT_OF_MEMORY;
    for (i = 0; i < module->n_devices; i++) {
        const inlay_unopened_t *device = &module->devices[i];
        for (j = 0; j < device->n_memories; j++) {
            inlay_gate_t *gate = &module->gates[device->hardware[j]];
            if (!device->hardware[j]) continue;
            module->spaces[device->memories[j]].gate = gate;
            if (gate->lock || !threads) continue;
            gate->lock = threads->open(module->host->user);
            if (!gate->lock) return INLAY_OUT_OF_MEMORY;
        }
    }
    return INLAY_OK;
}

void inlay_gates_close(inlay_module_t *module)
{
    uint32_t i;
    for (i = 0; module->gates && i < module->n_memories; i++)
        if (module->gates[i].lock)
            module->host->threads->close(module->host->user, module->gates[i].lock);
}

void inlay_gate_take(const inlay_module_t *module, inlay_gate_t *gate, const inlay_space_t *space)
{
    if (!gate) return;
    if (gate->lock) module->host->threads->lock(module->host->user, gate->lock);
    if (gate->holder && gate->holder != space)
        gate->holder->driver->wait(gate->holder->device, gate->last);
}

void inlay_gate_give(const inlay_module_t *module, inlay_gate_t *gate, const inlay_space_t *space,
                     const inlay_ticket_t *started)
{
    if (!gate) return;
    if (started) {
        gate->holder = space;
        gate->last = *started;
    }
    if (gate->lock) module->host->threads->unlock(module->host->user, gate->lock);
}
