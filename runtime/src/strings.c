/* The strings of a module, and the spans of instructions, which are strings. */
#include "container.h"

inlay_status_t inlay_strings_read(inlay_module_t *module, inlay_error_t *error)
{
    const inlay_section_t *section = &module->sections[STRS];
    const uint32_t *words = (const uint32_t *)(const void *)section->data;
    size_t head, i;
    if (section->bytes < 8) return inlay_container_corrupt(error, "the string table is too short");
    module->n_strings = words[0];
    head = ((size_t)words[0] + 2) * 4;
    if (section->bytes < head || words[1] != 0)
        return inlay_container_corrupt(error, "the string table is shorter than it says");
    for (i = 1; i <= words[0]; i++)
        if (words[i] > words[i + 1])
            return inlay_container_corrupt(error, "a string ends before it begins");
    if (words[words[0] + 1] != section->bytes - head)
        return inlay_container_corrupt(error,
                                       "the string table does not end where its last string does");
    module->string_ends = words + 1;
    module->string_text = (const char *)section->data + head;
    return INLAY_OK;
}

inlay_text_t inlay_module_string(const inlay_module_t *module, uint32_t index)
{
    inlay_text_t made;
    made.at = "";
    made.bytes = 0;
    if (index < module->n_strings) {
        made.at = module->string_text + module->string_ends[index];
        made.bytes = module->string_ends[index + 1] - module->string_ends[index];
    }
    return made;
}

inlay_text_t inlay_module_span(const inlay_module_t *module, const inlay_function_t *function,
                               uint32_t pc)
{
    uint32_t low = 0, high = function->n_spans;
    inlay_text_t none;
    none.at = "";
    none.bytes = 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (function->spans[2 * middle] <= pc) low = middle + 1;
        else high = middle;
    }
    return low ? inlay_module_string(module, function->spans[2 * (low - 1) + 1]) : none;
}
