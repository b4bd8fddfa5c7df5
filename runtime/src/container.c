/* Header, section table and digests of a container; container.py is the definition of the format. */
#include "container.h"

#include <string.h>

#include "sha256.h"

#define HEADER_BYTES 64
#define ROW_BYTES 64
#define FORMAT_VERSION 8
#define PAGE_BYTES 4096

static const char NAMES[N_SECTIONS][5] = {"STRS", "META", "POOL", "FUNC", "CODE", "SMAP",
                                          "CONS", "KERN", "SHAP", "ENTR", "DEVS", "DIMG", "IMAG",
                                          "CDAT"};

inlay_status_t inlay_container_corrupt(inlay_error_t *error, const char *message)
{
    return inlay_fail(error, INLAY_CORRUPT, message, NULL, 0);
}

static uint32_t load32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t load64(const uint8_t *at) { return load32(at) | (uint64_t)load32(at + 4) << 32; }

inlay_status_t inlay_container_table(const uint8_t *data, size_t bytes, inlay_section_t *sections,
                                     inlay_error_t *error)
{
    static const uint8_t magic[8] = {0x89, 'I', 'N', 'L', 'A', 'Y', '\r', '\n'};
    uint8_t digest[32];
    uint64_t end = HEADER_BYTES + N_SECTIONS * ROW_BYTES;
    uint32_t i;
    if (bytes < 8 || memcmp(data, magic, 8) != 0)
        return inlay_fail(error, INLAY_NOT_INLAY, "the file does not begin as an .inlay file does",
                          NULL, 0);
    if (bytes < HEADER_BYTES)
        return inlay_fail(error, INLAY_TRUNCATED, "the file ends within its header", NULL, 0);
    if (load32(data + 8) != FORMAT_VERSION) {
        int64_t found = load32(data + 8), known = FORMAT_VERSION;
        int64_t values[2];
        values[0] = found;
        values[1] = known;
        return inlay_fail(error, INLAY_VERSION,
                          "the file has format version {1}, this runtime reads {2}", values, 2);
    }
    if (load64(data + 16) != bytes)
        return inlay_fail(error, INLAY_TRUNCATED, "the file is not as long as its header says",
                          NULL, 0);
    if (load32(data + 12) != N_SECTIONS || load64(data + 24) != 0)
        return inlay_container_corrupt(error, "the header is malformed");
    if (bytes < end)
        return inlay_fail(error, INLAY_TRUNCATED, "the file ends within its section table", NULL, 0);
    inlay_sha256(data + HEADER_BYTES, N_SECTIONS * ROW_BYTES, digest);
    if (memcmp(digest, data + 32, 32) != 0)
        return inlay_fail(error, INLAY_DIGEST, "the section table is not what was written", NULL, 0);
    for (i = 0; i < N_SECTIONS; i++) {
        const uint8_t *row = data + HEADER_BYTES + ROW_BYTES * i;
        uint32_t alignment = i == IMAG || i == CDAT ? PAGE_BYTES : i == POOL ? 8 : 4;
        uint64_t offset = load64(row + 8), size = load64(row + 16);
        if (memcmp(row, NAMES[i], 4) != 0 || load32(row + 4) != alignment || load64(row + 24) != 0)
            return inlay_container_corrupt(error, "a row of the section table is malformed");
        if (offset != inlay_up(end, alignment) || offset > bytes || size > bytes - offset)
            return inlay_container_corrupt(error, "a section does not follow the one before");
        sections[i].data = data + offset;
        sections[i].bytes = (size_t)size;
        end = offset + size;
    }
    if (end != bytes) return inlay_container_corrupt(error, "bytes follow the last section");
    return INLAY_OK;
}

inlay_status_t inlay_container_digests(const uint8_t *data, const inlay_section_t *sections,
                                       int check_constants, inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < N_SECTIONS; i++) {
        uint8_t digest[32];
        if (i == CDAT && !check_constants) continue;
        inlay_sha256(sections[i].data, sections[i].bytes, digest);
        if (memcmp(digest, data + HEADER_BYTES + ROW_BYTES * i + 32, 32) != 0)
            return inlay_fail(error, INLAY_DIGEST, "a section is not what was written", NULL, 0);
    }
    return INLAY_OK;
}

inlay_status_t inlay_container_section(const uint8_t *data, size_t bytes, const char *id,
                                       size_t *offset, size_t *section_bytes, inlay_error_t *error)
{
    inlay_section_t sections[N_SECTIONS];
    uint32_t i;
    INLAY_TRY(inlay_container_table(data, bytes, sections, error));
    for (i = 0; i < N_SECTIONS; i++) {
        if (strcmp(id, NAMES[i]) != 0) continue;
        *offset = (size_t)(sections[i].data - data);
        *section_bytes = sections[i].bytes;
        return INLAY_OK;
    }
    return inlay_fail(error, INLAY_BAD_ARGUMENT, "no section has this name", NULL, 0);
}
