/* Sections of a file, and words of a section while they are read: every count, offset and index is
 * compared with what is there before use. */
#ifndef INLAY_CONTAINER_H
#define INLAY_CONTAINER_H

#include "module.h"

#define N_SECTIONS 14

enum { STRS, META, POOL, FUNC, CODE, SMAP, CONS, KERN, SHAP, ENTR, DEVS, DIMG, IMAG, CDAT };

static inline uint64_t inlay_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}

/* container.c. Find the sections of a file, and hold them against their digests. */
inlay_status_t inlay_container_table(const uint8_t *data, size_t bytes, inlay_section_t *sections,
                                     inlay_error_t *error);
inlay_status_t inlay_container_digests(const uint8_t *data, const inlay_section_t *sections,
                                       int check_constants, inlay_error_t *error);
inlay_status_t inlay_container_corrupt(inlay_error_t *error, const char *message);

/* reader.c. A section of words being read. `failed` sticks, and then every read gives 0 or NULL. */
typedef struct inlay_reader {
    inlay_module_t *module;
    const uint32_t *words;
    size_t count, at;
    int failed, no_memory;
} inlay_reader_t;

inlay_reader_t inlay_read_section(inlay_module_t *module, uint32_t section);
const uint32_t *inlay_read_words(inlay_reader_t *reader, size_t count);
uint32_t inlay_read_word(inlay_reader_t *reader);
uint32_t inlay_read_below(inlay_reader_t *reader, uint32_t limit);
/* The length of a list whose items are a word at least. */
uint32_t inlay_read_count(inlay_reader_t *reader);
int64_t inlay_read_wide(inlay_reader_t *reader);
inlay_text_t inlay_read_text(inlay_reader_t *reader);
inlay_formula_t inlay_read_formula(inlay_reader_t *reader);
/* Memory of the module for n items; NULL with `failed` set where there is none. */
void *inlay_read_items(inlay_reader_t *reader, size_t n, size_t item_bytes);
/* INLAY_OK where the section was read to its end and never contradicted itself. */
inlay_status_t inlay_read_end(const inlay_reader_t *reader, const char *section,
                              inlay_error_t *error);

/* strings.c. The table of strings. */
inlay_status_t inlay_strings_read(inlay_module_t *module, inlay_error_t *error);

/* entry.c. The signatures of what can be called. */
inlay_status_t inlay_read_entries(inlay_module_t *module, inlay_error_t *error);

#endif
