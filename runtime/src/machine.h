/* An activation: the state of one running call, and what is kept between calls.
 *
 * The machine's stack is a list of segments. In each, slots grow up and records of calls grow
 * down; a call whose frame does not fit moves its arguments to the next segment. A record holds
 * what the caller goes on with.
 *
 *   segment | header | slots -->            <-- records |
 */
#ifndef INLAY_MACHINE_H
#define INLAY_MACHINE_H

#include "flow.h"
#include "heap.h"
#include "module.h"

typedef struct inlay_segment inlay_segment_t;

typedef struct inlay_record {
    const inlay_function_t *function; /* NULL: the outside */
    const uint32_t *pc;
    inlay_slot_t *base;
    inlay_slot_t *sp; /* where results go */
    inlay_segment_t *segment;
} inlay_record_t;

struct inlay_segment {
    inlay_segment_t *next;
    size_t bytes;
    inlay_record_t *top; /* newest record, while another segment is the current one */
    size_t unused;
    inlay_slot_t slots[];
};

struct inlay_activation {
    const inlay_module_t *module;
    const inlay_host_t *host;
    inlay_config_t config;
    inlay_heap_t heap;
    inlay_segment_t *first, *current;
    size_t stack_bytes;    /* of all segments */
    inlay_error_t *error;  /* of the call that runs */
    inlay_slot_t *sp;      /* handed to and back by instructions outside the loop */
    /* Where the loop was when it began an instruction that may issue or wait. */
    const inlay_function_t *function;
    const uint32_t *pc;
    const inlay_record_t *top;
    inlay_command_t *now;  /* what a kernel needs that runs at once; in no list */
    inlay_flow_t flow;
    uint64_t steps;
};

/* vm.c: run a function whose arguments are at the start of the first segment's slots; results
 * are left there. */
inlay_status_t inlay_vm_run(inlay_activation_t *m, uint32_t function);

/* call.c: a tensor from outside into a slot; a tensor out of one, without its memory where something
 * else may refer to it (`is_sole` says that nothing else refers to what holds the slot). */
inlay_status_t inlay_push_input(inlay_activation_t *m, inlay_slot_t *slot,
                                const inlay_tensor_t *input);
inlay_status_t inlay_export(inlay_activation_t *m, const inlay_slot_t *slot, int is_sole,
                            inlay_result_t *result);

/* structure.c: values with structure into the slots of parameters, and out of those of results. */
inlay_status_t inlay_build(inlay_activation_t *m, const inlay_scope_t *scope, inlay_slot_t *slots,
                           const inlay_tensor_t *tensors, const int64_t *counts);
inlay_status_t inlay_export_all(inlay_activation_t *m, const inlay_scope_t *scope,
                                const inlay_slot_t *slots, inlay_values_t *values);

/* stack.c */
inlay_status_t inlay_stack_root(inlay_activation_t *m, size_t slots);
inlay_segment_t *inlay_stack_next(inlay_activation_t *m, size_t bytes);
void inlay_stack_trim(inlay_activation_t *m);
inlay_record_t *inlay_segment_end(inlay_segment_t *segment);

/* vm.c: the frames at the instruction noted above, and what an error says of them. */
void inlay_vm_where(const inlay_activation_t *m, inlay_where_t *where);
void inlay_vm_explain(const inlay_activation_t *m, const inlay_where_t *where, inlay_error_t *error);

/* kernel.c */
inlay_status_t inlay_invoke(inlay_activation_t *m, uint32_t kernel);
/* Ask the host whether to go on. */
inlay_status_t inlay_poll(inlay_activation_t *m);

/* tensor.c: instructions on tensors. Each takes its operands from m->sp and moves m->sp. */
inlay_status_t inlay_op_storage(inlay_activation_t *m, const uint32_t *operands);
inlay_status_t inlay_op_tensor(inlay_activation_t *m, const uint32_t *operands);
inlay_status_t inlay_op_allocate(inlay_activation_t *m, const uint32_t *operands);
inlay_status_t inlay_op_reshape(inlay_activation_t *m, const uint32_t *operands);
inlay_status_t inlay_op_rows(inlay_activation_t *m, int is_single);
inlay_status_t inlay_op_append(inlay_activation_t *m);
inlay_status_t inlay_op_extend(inlay_activation_t *m, uint32_t axis);
inlay_status_t inlay_op_own(inlay_activation_t *m);
inlay_status_t inlay_op_assign(inlay_activation_t *m);
inlay_status_t inlay_op_read_ints(inlay_activation_t *m, uint32_t n);
inlay_status_t inlay_op_make_ints(inlay_activation_t *m, uint32_t dtype, uint32_t n, uint32_t rank);
inlay_status_t inlay_op_dims(inlay_activation_t *m, uint32_t rank);

/* Failures that several files report. */
inlay_status_t inlay_wrong_kind(inlay_activation_t *m, uint32_t wanted, uint32_t found);
inlay_status_t inlay_no_memory(inlay_activation_t *m);

/* Fail unless the n top slots are integers. */
inlay_status_t inlay_need_ints(inlay_activation_t *m, const inlay_slot_t *slots, size_t n);

#endif
