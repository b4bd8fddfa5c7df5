/* Signatures of entries: values with structure, the symbols of their dims, and what calls must meet. */
#include "container.h"

#include <string.h>

static void read_scope(inlay_reader_t *reader, inlay_scope_t *scope, uint32_t n, uint32_t outer,
                       uint32_t depth, int is_input);

/* Read the specs of a tuple or scope, which see `outer` symbols; counts places in the scope. */
static inlay_spec_t *read_specs(inlay_reader_t *reader, uint32_t n, uint32_t outer, uint32_t depth,
                                int is_input, inlay_scope_t *scope)
{
    inlay_spec_t *specs = inlay_read_items(reader, n, sizeof *specs);
    uint32_t i, axis;
    if (n && depth > INLAY_MAX_NESTING) reader->failed = 1;
    for (i = 0; i < n && !reader->failed; i++) {
        inlay_spec_t *spec = &specs[i];
        spec->name = inlay_read_text(reader);
        spec->form = inlay_read_below(reader, FORMS);
        switch (spec->form) {
        case FORM_TENSOR:
            scope->n_leaves++;
            spec->dtype = inlay_read_below(reader, INLAY_DTYPES);
            spec->rank = inlay_read_below(reader, INLAY_MAX_RANK + 1);
            spec->dims = inlay_read_items(reader, spec->rank, sizeof *spec->dims);
            for (axis = 0; axis < spec->rank && !reader->failed; axis++) {
                spec->dims[axis].text = inlay_read_text(reader);
                spec->dims[axis].known = inlay_read_below(reader, 2);
                if (spec->dims[axis].known) spec->dims[axis].value = inlay_read_formula(reader);
            }
            break;
        case FORM_TUPLE:
            spec->n_fields = inlay_read_count(reader);
            spec->fields =
                read_specs(reader, spec->n_fields, outer, depth + 1, is_input, scope);
            break;
        default:
            scope->n_parts++;
            spec->element = inlay_read_items(reader, 1, sizeof *spec->element);
            if (!reader->failed) {
                memset(spec->element, 0, sizeof *spec->element);
                read_scope(reader, spec->element, 1, outer, depth + 1, is_input);
            }
        }
    }
    return specs;
}

static void find_places(inlay_scope_t *scope, const inlay_spec_t *specs, uint32_t n)
{
    uint32_t i;
    for (i = 0; i < n; i++) {
        if (specs[i].form == FORM_TENSOR) scope->leaves[scope->n_leaves++] = &specs[i];
        else if (specs[i].form == FORM_TUPLE) find_places(scope, specs[i].fields, specs[i].n_fields);
        else scope->parts[scope->n_parts++] = &specs[i];
    }
}

/* Symbols come before specs in the file, so that elements know how many surround them. Only inputs
 * have any: dims of outputs are over the symbols of the inputs, or not known. */
static void read_scope(inlay_reader_t *reader, inlay_scope_t *scope, uint32_t n, uint32_t outer,
                       uint32_t depth, int is_input)
{
    uint32_t i, axis;
    scope->n = n;
    scope->n_symbols = inlay_read_count(reader);
    if (scope->n_symbols > (is_input ? INLAY_MAX_SYMBOLS - outer : 0)) reader->failed = 1;
    scope->symbols = inlay_read_items(reader, scope->n_symbols, sizeof *scope->symbols);
    for (i = 0; i < scope->n_symbols && !reader->failed; i++) {
        scope->symbols[i].name = inlay_read_text(reader);
        scope->symbols[i].leaf = inlay_read_word(reader);
        scope->symbols[i].axis = inlay_read_word(reader);
        scope->symbols[i].solution = inlay_read_formula(reader);
        if (!reader->failed && !inlay_formula_check(scope->symbols[i].solution, outer + i + 1))
            reader->failed = 1;
    }
    outer += scope->n_symbols;
    scope->specs = read_specs(reader, n, outer, depth, is_input, scope);
    scope->leaves = inlay_read_items(reader, scope->n_leaves, sizeof *scope->leaves);
    scope->parts = inlay_read_items(reader, scope->n_parts, sizeof *scope->parts);
    if (reader->failed) return;
    scope->n_leaves = scope->n_parts = 0;
    find_places(scope, scope->specs, n);
    scope->is_flat = 1;
    for (i = 0; i < n; i++)
        if (scope->specs[i].form != FORM_TENSOR) scope->is_flat = 0;
    for (i = 0; i < scope->n_symbols; i++)
        if (scope->symbols[i].leaf >= scope->n_leaves ||
            scope->symbols[i].axis >= scope->leaves[scope->symbols[i].leaf]->rank)
            reader->failed = 1;
    for (i = 0; i < scope->n_leaves; i++)
        for (axis = 0; axis < scope->leaves[i]->rank; axis++) {
            const inlay_dim_t *dim = &scope->leaves[i]->dims[axis];
            if (dim->known ? !inlay_formula_check(dim->value, outer) : is_input)
                reader->failed = 1;
        }
}

/* The kind of the slot in which the function of an entry takes or gives a value. */
static uint32_t kind_of(const inlay_spec_t *spec)
{
    if (spec->form == FORM_TENSOR) return KIND_TENSOR;
    return spec->form == FORM_TUPLE ? KIND_TUPLE : KIND_ADT;
}

/* Hold an entry against its function. */
static int entry_is_right(const inlay_module_t *module, const inlay_entry_t *entry)
{
    const inlay_function_t *f;
    uint32_t i;
    if (entry->function >= module->n_functions) return 0;
    f = &module->functions[entry->function];
    if (f->n_params != entry->inputs.n || f->n_results != entry->outputs.n) return 0;
    for (i = 0; i < f->n_params; i++)
        if (f->params[i] != kind_of(&entry->inputs.specs[i])) return 0;
    for (i = 0; i < f->n_results; i++)
        if (f->results[i] != kind_of(&entry->outputs.specs[i])) return 0;
    for (i = 0; i < entry->n_requirements; i++)
        if (!inlay_formula_check(entry->requirements[i].value, entry->inputs.n_symbols)) return 0;
    return 1;
}

inlay_status_t inlay_read_entries(inlay_module_t *module, inlay_error_t *error)
{
    inlay_reader_t reader = inlay_read_section(module, ENTR);
    uint32_t i, k;
    module->n_entries = inlay_read_count(&reader);
    module->entries = inlay_read_items(&reader, module->n_entries, sizeof *module->entries);
    for (i = 0; i < module->n_entries && !reader.failed; i++) {
        inlay_entry_t *entry = &module->entries[i];
        memset(entry, 0, sizeof *entry);
        entry->name = inlay_read_text(&reader);
        entry->function = inlay_read_word(&reader);
        read_scope(&reader, &entry->inputs, inlay_read_count(&reader), 0, 0, 1);
        read_scope(&reader, &entry->outputs, inlay_read_count(&reader), entry->inputs.n_symbols, 0, 0);
        entry->n_requirements = inlay_read_count(&reader);
        entry->requirements =
            inlay_read_items(&reader, entry->n_requirements, sizeof *entry->requirements);
        for (k = 0; k < entry->n_requirements && !reader.failed; k++) {
            entry->requirements[k].text = inlay_read_text(&reader);
            entry->requirements[k].value = inlay_read_formula(&reader);
        }
        if (!reader.failed && !entry_is_right(module, entry)) reader.failed = 1;
    }
    return inlay_read_end(&reader, "ENTR", error);
}
