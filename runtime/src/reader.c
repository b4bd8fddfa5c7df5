/* Words of a section, read one after the other and never beyond its end. */
#include "container.h"

#include <string.h>

inlay_reader_t inlay_read_section(inlay_module_t *module, uint32_t section)
{
    inlay_reader_t reader;
    memset(&reader, 0, sizeof reader);
    reader.module = module;
    reader.words = (const uint32_t *)(const void *)module->sections[section].data;
    reader.count = module->sections[section].bytes / 4;
    reader.failed = module->sections[section].bytes % 4 != 0;
    return reader;
}

const uint32_t *inlay_read_words(inlay_reader_t *reader, size_t count)
{
    if (reader->failed || count > reader->count - reader->at) {
        reader->failed = 1;
        return NULL;
    }
    reader->at += count;
    return reader->words + reader->at - count;
}

uint32_t inlay_read_word(inlay_reader_t *reader)
{
    const uint32_t *at = inlay_read_words(reader, 1);
    return at ? *at : 0;
}

uint32_t inlay_read_below(inlay_reader_t *reader, uint32_t limit)
{
    uint32_t value = inlay_read_word(reader);
    if (value < limit) return value;
    reader->failed = 1;
    return 0;
}

uint32_t inlay_read_count(inlay_reader_t *reader)
{
    uint32_t value = inlay_read_word(reader);
    if (value <= reader->count - reader->at) return value;
    reader->failed = 1;
    return 0;
}

int64_t inlay_read_wide(inlay_reader_t *reader)
{
    uint64_t low = inlay_read_word(reader), high = inlay_read_word(reader);
    return (int64_t)(low | high << 32);
}

inlay_text_t inlay_read_text(inlay_reader_t *reader)
{
    return inlay_module_string(reader->module, inlay_read_below(reader, reader->module->n_strings));
}

inlay_formula_t inlay_read_formula(inlay_reader_t *reader)
{
    inlay_formula_t made;
    uint32_t step;
    made.steps = inlay_read_below(reader, 1025);
    made.words = reader->words + reader->at;
    for (step = 0; step < made.steps; step++) {
        uint32_t code = inlay_read_word(reader);
        if (code < 2) inlay_read_words(reader, code == 0 ? 2 : 1);
    }
    return made;
}

void *inlay_read_items(inlay_reader_t *reader, size_t n, size_t item_bytes)
{
    void *memory = reader->failed ? NULL : inlay_arena_take(&reader->module->arena, n, item_bytes);
    if (!memory) {
        if (!reader->failed) reader->no_memory = 1;
        reader->failed = 1;
    }
    return memory;
}

inlay_status_t inlay_read_end(const inlay_reader_t *reader, const char *section, inlay_error_t *error)
{
    if (reader->no_memory)
        return inlay_fail(error, INLAY_OUT_OF_MEMORY, "no memory for the tables of an executable",
                          NULL, 0);
    if (!reader->failed && reader->at == reader->count) return INLAY_OK;
    inlay_container_corrupt(error, "section ");
    inlay_say(error, section);
    inlay_say(error, " at word ");
    inlay_say_int(error, (int64_t)reader->at);
    inlay_say(error, " contradicts itself");
    return INLAY_CORRUPT;
}
