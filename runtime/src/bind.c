/* Comparing inputs with the signature of an entry; binder.py says the same, all at once.
 *
 * A call has a scope of tensors and parts (lists, options); each element of a part has one again.
 * A frame is one such scope while it is compared: its tensors lie side by side, and its symbols
 * follow those of the frames around it. */
#include "module.h"

static const char *const NAMES[INLAY_DTYPES] = {
    "bool", "i8",  "i16", "i32",  "i64", "u8",  "u16",
    "u32",  "u64", "f16", "bf16", "f32", "f64", "string"};

typedef struct frame {
    const struct frame *outer;
    const inlay_scope_t *scope;
    const inlay_spec_t *part; /* what it is an element of; NULL for the call itself */
    int64_t index;            /* which element */
    const inlay_tensor_t *tensors;
    uint32_t first;           /* how many symbols the frames around it have */
    uint32_t known;           /* how many of its own have their values */
} frame_t;

typedef struct binding {
    const inlay_entry_t *entry;
    const inlay_tensor_t *tensors; /* what is left of the call */
    const int64_t *counts;
    uint32_t n_tensors, n_counts;
    /* values[0] is the dim a symbol is solved from; the symbols follow. */
    int64_t values[1 + INLAY_MAX_SYMBOLS];
    inlay_error_t *error;
} binding_t;

/* "x[2].1": how to get from the inputs to a value. */
static void say_path(inlay_error_t *error, const frame_t *frame, inlay_text_t last)
{
    if (frame->part) {
        say_path(error, frame->outer, frame->part->name);
        if (frame->part->form == FORM_LIST) {
            inlay_say(error, "[");
            inlay_say_int(error, frame->index);
            inlay_say(error, "]");
        }
    }
    inlay_say_text(error, last);
}

static inlay_status_t start(binding_t *b, const frame_t *frame, inlay_text_t name)
{
    inlay_fail(b->error, INLAY_BAD_INPUT, "input '", NULL, 0);
    say_path(b->error, frame, name);
    inlay_say(b->error, "': expected ");
    return INLAY_BAD_INPUT;
}

static inlay_status_t wrong_dtype(binding_t *b, const frame_t *frame, uint32_t leaf)
{
    const inlay_spec_t *spec = frame->scope->leaves[leaf];
    uint32_t found = frame->tensors[leaf].dtype;
    start(b, frame, spec->name);
    inlay_say(b->error, NAMES[spec->dtype]);
    inlay_say(b->error, "; found ");
    inlay_say(b->error, found < INLAY_DTYPES ? NAMES[found] : "another type");
    return INLAY_BAD_INPUT;
}

static void say_expected(inlay_error_t *error, const inlay_spec_t *spec)
{
    uint32_t axis;
    inlay_say(error, "[");
    for (axis = 0; axis < spec->rank; axis++) {
        if (axis) inlay_say(error, ", ");
        inlay_say_text(error, spec->dims[axis].text);
    }
    inlay_say(error, "]");
}

static void say_found(inlay_error_t *error, const inlay_tensor_t *found)
{
    uint32_t axis;
    inlay_say(error, "; found [");
    for (axis = 0; axis < found->rank; axis++) {
        if (axis) inlay_say(error, ", ");
        inlay_say_int(error, found->dims[axis]);
    }
    inlay_say(error, "]");
}

/* Say what the known symbols of a frame and of those around it are; returns how many. */
static uint32_t say_symbols(binding_t *b, const frame_t *frame, const char *first)
{
    uint32_t i, said = frame->outer ? say_symbols(b, frame->outer, first) : 0;
    for (i = 0; i < frame->known; i++) {
        const inlay_symbol_t *symbol = &frame->scope->symbols[i];
        inlay_say(b->error, said++ ? ", " : first);
        inlay_say_text(b->error, symbol->name);
        inlay_say(b->error, " = ");
        inlay_say_int(b->error, b->values[1 + frame->first + i]);
        inlay_say(b->error, " from input '");
        say_path(b->error, frame, frame->scope->leaves[symbol->leaf]->name);
        inlay_say(b->error, "' axis ");
        inlay_say_int(b->error, symbol->axis);
    }
    return said;
}

static inlay_status_t wrong_shape(binding_t *b, const frame_t *frame, uint32_t leaf)
{
    start(b, frame, frame->scope->leaves[leaf]->name);
    say_expected(b->error, frame->scope->leaves[leaf]);
    say_symbols(b, frame, " with ");
    say_found(b->error, &frame->tensors[leaf]);
    return INLAY_BAD_INPUT;
}

/* Compare the tensors of a frame: types, then symbols in order, then every dim. */
static inlay_status_t bind_leaves(binding_t *b, frame_t *frame)
{
    const inlay_scope_t *scope = frame->scope;
    int64_t value;
    uint32_t i, axis;
    if (b->n_tensors < scope->n_leaves)
        return inlay_fail(b->error, INLAY_BAD_ARGUMENT, "the call has too few tensors", NULL, 0);
    frame->tensors = b->tensors;
    b->tensors += scope->n_leaves;
    b->n_tensors -= scope->n_leaves;
    for (i = 0; i < scope->n_leaves; i++) {
        if (frame->tensors[i].dtype != scope->leaves[i]->dtype) return wrong_dtype(b, frame, i);
        if (frame->tensors[i].rank != scope->leaves[i]->rank) return wrong_shape(b, frame, i);
    }
    for (i = 0; i < scope->n_symbols; i++) {
        const inlay_symbol_t *symbol = &scope->symbols[i];
        b->values[0] = frame->tensors[symbol->leaf].dims[symbol->axis];
        if (!inlay_formula_value(symbol->solution, b->values, &b->values[1 + frame->first + i]))
            return wrong_shape(b, frame, symbol->leaf);
        frame->known = i + 1;
    }
    for (i = 0; i < scope->n_leaves; i++)
        for (axis = 0; axis < scope->leaves[i]->rank; axis++)
            if (!inlay_formula_value(scope->leaves[i]->dims[axis].value, b->values + 1, &value) ||
                value != frame->tensors[i].dims[axis])
                return wrong_shape(b, frame, i);
    return INLAY_OK;
}

static inlay_status_t bind_parts(binding_t *b, const frame_t *frame)
{
    frame_t inner;
    uint32_t part;
    inner.outer = frame;
    inner.first = frame->first + frame->scope->n_symbols;
    for (part = 0; part < frame->scope->n_parts; part++) {
        int64_t n;
        inner.part = frame->scope->parts[part];
        inner.scope = inner.part->element;
        if (!b->n_counts)
            return inlay_fail(b->error, INLAY_BAD_ARGUMENT,
                              "the call says nothing of the length of a list or option", NULL, 0);
        n = *b->counts++;
        b->n_counts--;
        if (n < 0 || (inner.part->form == FORM_OPTION && n > 1))
            return inlay_fail(b->error, INLAY_BAD_ARGUMENT,
                              "{1} is no length of a list or option", &n, 1);
        for (inner.index = 0; inner.index < n; inner.index++) {
            inner.known = 0;
            INLAY_TRY(bind_leaves(b, &inner));
            INLAY_TRY(bind_parts(b, &inner));
        }
    }
    return INLAY_OK;
}

inlay_status_t inlay_bind_all(const inlay_module_t *module, uint32_t index,
                              const inlay_tensor_t *tensors, uint32_t n_tensors,
                              const int64_t *counts, uint32_t n_counts, inlay_error_t *error)
{
    binding_t b;
    frame_t frame = {NULL, NULL, NULL, 0, NULL, 0, 0};
    int64_t value;
    uint32_t i;
    if (index >= module->n_entries)
        return inlay_fail(error, INLAY_BAD_ARGUMENT, "there is no such entry", NULL, 0);
    b.entry = &module->entries[index];
    b.tensors = tensors;
    b.n_tensors = n_tensors;
    b.counts = counts;
    b.n_counts = n_counts;
    b.error = error;
    frame.scope = &b.entry->inputs;
    if (!frame.scope->n_parts && n_tensors != frame.scope->n_leaves) {
        b.values[0] = frame.scope->n_leaves;
        b.values[1] = n_tensors;
        return inlay_fail(error, INLAY_BAD_INPUT, "expected {1} inputs; found {2}", b.values, 2);
    }
    INLAY_TRY(bind_leaves(&b, &frame));
    for (i = 0; i < b.entry->n_requirements; i++) {
        const inlay_requirement_t *requirement = &b.entry->requirements[i];
        if (inlay_formula_value(requirement->value, b.values + 1, &value) && value) continue;
        inlay_fail(error, INLAY_BAD_INPUT, "the inputs must have ", NULL, 0);
        inlay_say_text(error, requirement->text);
        say_symbols(&b, &frame, "; found ");
        return INLAY_BAD_INPUT;
    }
    INLAY_TRY(bind_parts(&b, &frame));
    if (!b.n_tensors && !b.n_counts) return INLAY_OK;
    return inlay_fail(error, INLAY_BAD_ARGUMENT, "the call has more than the entry takes", NULL, 0);
}

inlay_status_t inlay_bind(const inlay_module_t *module, uint32_t index,
                          const inlay_tensor_t *inputs, uint32_t n_inputs, inlay_error_t *error)
{
    return inlay_bind_all(module, index, inputs, n_inputs, NULL, 0, error);
}
