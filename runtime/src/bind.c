/* Comparing inputs with the signature of an entry; binder.py says the same, all at once. */
#include "module.h"

static const char *const NAMES[INLAY_DTYPES] = {"bool", "i8",  "i16", "i32",  "i64", "u8", "u16",
                                                "u32",  "u64", "f16", "bf16", "f32", "f64"};

static inlay_status_t start(inlay_error_t *error, const inlay_spec_t *spec)
{
    inlay_fail(error, INLAY_BAD_INPUT, "input '", NULL, 0);
    inlay_say_text(error, spec->name);
    inlay_say(error, "': expected ");
    return INLAY_BAD_INPUT;
}

static inlay_status_t wrong_dtype(inlay_error_t *error, const inlay_spec_t *spec,
                                  const inlay_tensor_t *found)
{
    start(error, spec);
    inlay_say(error, NAMES[spec->dtype]);
    inlay_say(error, "; found ");
    inlay_say(error, found->dtype < INLAY_DTYPES ? NAMES[found->dtype] : "another type");
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

static void say_symbols(inlay_error_t *error, const inlay_entry_t *entry, const int64_t *values,
                        uint32_t n, const char *first)
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        const inlay_symbol_t *symbol = &entry->symbols[i];
        inlay_say(error, i ? ", " : first);
        inlay_say_text(error, symbol->name);
        inlay_say(error, " = ");
        inlay_say_int(error, values[i]);
        inlay_say(error, " from input '");
        inlay_say_text(error, entry->inputs[symbol->input].name);
        inlay_say(error, "' axis ");
        inlay_say_int(error, symbol->axis);
    }
}

static inlay_status_t wrong_shape(inlay_error_t *error, const inlay_entry_t *entry, uint32_t input,
                                  const inlay_tensor_t *found, const int64_t *values, uint32_t n)
{
    start(error, &entry->inputs[input]);
    say_expected(error, &entry->inputs[input]);
    say_symbols(error, entry, values, n, " with ");
    say_found(error, found);
    return INLAY_BAD_INPUT;
}

static inlay_status_t check_types(const inlay_entry_t *entry, const inlay_tensor_t *inputs,
                                  inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < entry->n_inputs; i++) {
        if (inputs[i].dtype != entry->inputs[i].dtype)
            return wrong_dtype(error, &entry->inputs[i], &inputs[i]);
        if (inputs[i].rank != entry->inputs[i].rank)
            return wrong_shape(error, entry, i, &inputs[i], NULL, 0);
    }
    return INLAY_OK;
}

inlay_status_t inlay_bind(const inlay_module_t *module, uint32_t index,
                          const inlay_tensor_t *inputs, uint32_t n_inputs, inlay_error_t *error)
{
    /* values[0] is the dim a symbol is solved from; the symbols follow. */
    int64_t values[1 + INLAY_MAX_SYMBOLS], *symbols = values + 1, value;
    const inlay_entry_t *entry;
    uint32_t i, axis;
    if (index >= module->n_entries)
        return inlay_fail(error, INLAY_BAD_ARGUMENT, "there is no such entry", NULL, 0);
    entry = &module->entries[index];
    if (n_inputs != entry->n_inputs) {
        values[0] = entry->n_inputs;
        values[1] = n_inputs;
        return inlay_fail(error, INLAY_BAD_INPUT, "expected {1} inputs; found {2}", values, 2);
    }
    INLAY_TRY(check_types(entry, inputs, error));
    for (i = 0; i < entry->n_symbols; i++) {
        const inlay_symbol_t *symbol = &entry->symbols[i];
        values[0] = inputs[symbol->input].dims[symbol->axis];
        if (!inlay_formula_value(symbol->solution, values, &symbols[i]))
            return wrong_shape(error, entry, symbol->input, &inputs[symbol->input], symbols, i);
    }
    for (i = 0; i < entry->n_inputs; i++)
        for (axis = 0; axis < entry->inputs[i].rank; axis++)
            if (!inlay_formula_value(entry->inputs[i].dims[axis].value, symbols, &value) ||
                value != inputs[i].dims[axis])
                return wrong_shape(error, entry, i, &inputs[i], symbols, entry->n_symbols);
    for (i = 0; i < entry->n_requirements; i++) {
        if (inlay_formula_value(entry->requirements[i].value, symbols, &value) && value) continue;
        inlay_fail(error, INLAY_BAD_INPUT, "the inputs must have ", NULL, 0);
        inlay_say_text(error, entry->requirements[i].text);
        say_symbols(error, entry, symbols, entry->n_symbols, "; found ");
        return INLAY_BAD_INPUT;
    }
    return INLAY_OK;
}
