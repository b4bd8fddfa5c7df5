/* A loaded executable: the tables of the container, decoded; words and strings stay in the file. */
#ifndef INLAY_MODULE_H
#define INLAY_MODULE_H

#include "arena.h"
#include "device.h"
#include "status.h"
#include "value.h"

/* Postfix over 64-bit integers: 0 low high | 1 argument | 2 + operator. See formula.py. */
typedef struct inlay_formula {
    const uint32_t *words;
    uint32_t steps;
} inlay_formula_t;

typedef struct inlay_function {
    inlay_text_t name;
    const uint32_t *code;
    const uint32_t *params;  /* kinds */
    const uint32_t *results; /* kinds */
    const uint32_t *spans;   /* pairs: word position, string */
    uint32_t code_words, n_params, n_results, n_spans, frame;
    uint32_t effects; /* EFFECT_..: of its code and of all functions that this names */
} inlay_function_t;

#define INLAY_MOST_PIECES 16

typedef struct inlay_step {
    inlay_phase_t run;
    uint32_t parallel;     /* 0, or how many pieces parts consist of; see command.c */
    inlay_formula_t items; /* of a kernel of a device */
} inlay_step_t;

enum { INLAY_BODY_IMAGE, INLAY_BODY_SYMBOL, INLAY_BODY_CALLBACK, INLAY_BODY_FUNCTION,
       INLAY_BODY_DEVICE, INLAY_BODY_COPY, INLAY_BODIES };

typedef struct inlay_kernel {
    inlay_text_t name;
    inlay_text_t symbol;     /* of a C function, a callback, or in the image of a device */
    const uint32_t *ports;   /* 0 read, 1 write, 2 both */
    const uint32_t *assertions; /* strings */
    inlay_step_t *phases;
    uint32_t n_ports, n_ints, n_phases, n_assertions;
    uint32_t body;           /* INLAY_BODY_ */
    uint32_t n_reads;        /* of a function over tensors: the first ports */
    uint32_t memory;         /* of the unit that runs it, for a kernel of a device */
    int32_t number;          /* that the driver gave it */
    uint32_t is_ordered;     /* it does more than to write its ports, and keeps its place */
    uint32_t workspace_kind; /* 0 none, 1 one for all parts, 2 one for each, 3 in a port */
    inlay_formula_t workspace, cost;
    inlay_formula_t *sizes;  /* bytes that it may touch of each tensor; NULL where nobody says */
    const uint32_t *spans;   /* the first and the last phase that touches each; NULL where nobody says */
    const struct inlay_kernel *batch; /* does the work of several calls; NULL for none */
    const uint32_t *shared;           /* ports that all calls of a batch have in common */
    uint32_t n_shared, batch_number;  /* number: of the batch's kernel, counted from 1 */
} inlay_kernel_t;

/* Which of its buffers is the workspace. */
static inline uint32_t inlay_workspace_at(const inlay_kernel_t *kernel)
{
    return kernel->n_ports - (kernel->workspace_kind == 3);
}

/* Whether it may work on memory of devices. */
static inline int inlay_leaves_host(const inlay_kernel_t *kernel)
{
    return kernel->body == INLAY_BODY_DEVICE || kernel->body == INLAY_BODY_COPY;
}

/* Whether its commands gather to run as one; NULL is a copy. */
static inline int inlay_gathers(const inlay_kernel_t *kernel) { return kernel && kernel->batch; }

/* Whether it is given tensors with their dims, not addresses alone. */
static inline int inlay_takes_tensors(const inlay_kernel_t *kernel)
{
    return kernel->body == INLAY_BODY_CALLBACK || kernel->body == INLAY_BODY_FUNCTION;
}

/* Native code of shape arithmetic: result i goes to out[2 * i]. Not 0 where an instruction that it
 * stands for would fail. */
typedef int64_t (*inlay_shape_code_t)(const int64_t *in, int64_t *out);

#define INLAY_MAX_SHAPE_INPUTS 64

typedef struct inlay_shape {
    inlay_shape_code_t run; /* NULL without an image */
    const uint32_t *inputs; /* pairs: slot, and 0 for what it holds or 1 + axis of the tensor in it */
    uint32_t n_inputs, n_results;
} inlay_shape_t;

typedef struct inlay_dim {
    inlay_text_t text;
    inlay_formula_t value;
    uint32_t known; /* dims of outputs may have no formula */
} inlay_dim_t;

enum { FORM_TENSOR, FORM_TUPLE, FORM_LIST, FORM_OPTION, FORMS };

typedef struct inlay_scope inlay_scope_t;

/* A value of a signature. `name` is the input or output, or what a path adds to it: "x", ".1". */
typedef struct inlay_spec {
    inlay_text_t name;
    uint32_t form;
    uint32_t dtype, rank;       /* of a tensor */
    inlay_dim_t *dims;
    uint32_t n_fields;          /* of a tuple */
    struct inlay_spec *fields;
    inlay_scope_t *element;     /* of a list or option */
} inlay_spec_t;

typedef struct inlay_symbol {
    inlay_text_t name;
    uint32_t leaf, axis; /* which tensor of its scope, which dim */
    inlay_formula_t solution;
} inlay_symbol_t;

/* What a call or one element of a list has. Tensors in fixed places are `leaves`: inputs, and fields
 * of tuples. Lists and options are `parts`: how much is in them, only a call tells. Formulas are
 * over the symbols of all scopes around, the outermost first, and then its own. */
struct inlay_scope {
    inlay_spec_t *specs;
    const inlay_spec_t **leaves, **parts;
    inlay_symbol_t *symbols;
    uint32_t n, n_leaves, n_parts, n_symbols;
    uint32_t is_flat; /* all specs are tensors */
};

typedef struct inlay_requirement {
    inlay_text_t text;
    inlay_formula_t value;
} inlay_requirement_t;

typedef struct inlay_entry {
    inlay_text_t name;
    uint32_t function, n_requirements;
    inlay_scope_t inputs, outputs; /* outputs have no symbols of their own */
    inlay_requirement_t *requirements;
} inlay_entry_t;

typedef struct inlay_section {
    const uint8_t *data;
    size_t bytes;
} inlay_section_t;

struct inlay_module {
    const inlay_host_t *host;
    inlay_arena_t arena;
    inlay_section_t sections[14];
    const uint8_t *image;
    size_t image_bytes;
    uint32_t n_strings;
    const uint32_t *string_ends;
    const char *string_text;
    const uint8_t *pool; /* 64-bit integers */
    size_t n_pool;
    uint32_t n_memories, n_functions, n_constants, n_kernels, n_shapes, n_entries;
    inlay_function_t *functions;
    inlay_view_t **constants;
    uint32_t *constant_memories;
    inlay_space_t *spaces;        /* of each memory */
    inlay_gate_t *gates;          /* by number of hardware, fewer than memories; 0 is not used */
    inlay_unopened_t *devices;
    uint32_t n_devices;
    inlay_kernel_t *kernels;
    inlay_shape_t *shapes;
    inlay_entry_t *entries;
    uint32_t max_ports, max_ints; /* of any kernel */
    uint32_t has_batches;         /* whether any kernel has one */
};

int64_t inlay_module_integer(const inlay_module_t *module, uint32_t index);

/* strings.c */
inlay_text_t inlay_module_string(const inlay_module_t *module, uint32_t index);
/* Text of the span that covers a word of a function; bytes are 0 where there is none. */
inlay_text_t inlay_module_span(const inlay_module_t *module, const inlay_function_t *function,
                               uint32_t pc);

/* bind.c: hold tensors and counts, in the order of `inlay_call_structured`, against a signature. */
inlay_status_t inlay_bind_all(const inlay_module_t *module, uint32_t entry,
                              const inlay_tensor_t *tensors, uint32_t n_tensors,
                              const int64_t *counts, uint32_t n_counts, inlay_error_t *error);

/* formula.c: check over so many arguments (0 where it is wrong); value, or 0 where undefined. */
int inlay_formula_check(inlay_formula_t formula, uint32_t arity);
int inlay_formula_value(inlay_formula_t formula, const int64_t *arguments, int64_t *value);

/* verify.c: everything the dispatch loop relies on. */
inlay_status_t inlay_verify(const inlay_module_t *module, inlay_error_t *error);

/* Arithmetic that says whether the result fits. */
int inlay_add(int64_t a, int64_t b, int64_t *sum);
int inlay_subtract(int64_t a, int64_t b, int64_t *difference);
int inlay_multiply(int64_t a, int64_t b, int64_t *product);
/* b is not 0; a quotient that does not fit gives 0. */
int inlay_floor_divide(int64_t a, int64_t b, int64_t *quotient);
int64_t inlay_modulo(int64_t a, int64_t b);

#endif
