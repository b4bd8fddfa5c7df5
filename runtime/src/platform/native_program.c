/* Programs of the processor as a device: images of native code, read and mapped. See native.c.
 *
 * An image is a frame around machine code; integers are little-endian, texts a length (u32) and bytes:
 *
 *     magic 8 bytes "INLAYNC1", what it needs (text: words as `offers` has them), code bytes u64,
 *     kernels u32, for each: name text, buffers u32, integers u32, phases u32, for each: offset u64;
 *     the code, at the end of the image; it runs wherever it is mapped. */
#define _POSIX_C_SOURCE 200809L
#include "platform/native_device.h"

#include <stdio.h>
#include <string.h>

#include "platform/permission.h"
#include "platform/posix.h"

inlay_status_t inlay_native_refuse(inlay_status_t status, const char *why, char *message,
                                   size_t bytes)
{
    if (bytes) snprintf(message, bytes, "%s", why);
    return status;
}

/* Whether a word is in a text of words. */
static int has_word(const char *words, char between, const char *word, size_t size)
{
    while (*words) {
        size_t n = 0;
        while (words[n] && words[n] != between) n++;
        if (n == size && memcmp(words, word, n) == 0) return 1;
        words += n + (words[n] != '\0');
    }
    return 0;
}

static inlay_status_t check_needs(const inlay_device_t *device, const char *needs, char *message,
                                  size_t bytes)
{
    while (*needs) {
        const size_t n = strcspn(needs, " ");
        if (n && !has_word(device->offers, ',', needs, n)) {
            if (bytes)
                snprintf(message, bytes, "the image needs %.*s, which this processor does not offer",
                         (int)n, needs);
            return INLAY_BUILD_FAILED;
        }
        if (n && !inlay_posix_permit(NULL, needs, n)) {
            if (bytes)
                snprintf(message, bytes,
                         "the image uses %.*s, which this system does not let the process use", (int)n,
                         needs);
            return INLAY_BUILD_FAILED;
        }
        needs += n + (needs[n] != '\0');
    }
    return INLAY_OK;
}

void inlay_native_drop(const inlay_device_t *device, inlay_program_t *program)
{
    inlay_posix_unmap(program->code, program->code_bytes);
    if (program->kernels)
        inlay_give(device->host, program->kernels,
                   (program->n_kernels + 1) * sizeof *program->kernels);
    inlay_give(device->host, program, sizeof *program);
}

static void read_kernel(wire_reader_t *r, kernel_t *k, const inlay_program_t *program)
{
    uint32_t i;
    inlay_wire_read_text(r, k->name, sizeof k->name);
    k->n_buffers = inlay_wire_read_count(r, MOST_BUFFERS);
    k->n_ints = inlay_wire_read_count(r, WIRE_MOST_INTS);
    k->n_phases = inlay_wire_read_count(r, WIRE_MOST_PHASES);
    for (i = 0; i < k->n_phases; i++) {
        const uint64_t offset = inlay_wire_read_u64(r);
        const uint8_t *at = program->code;
        if (offset >= program->code_bytes) {
            r->is_bad = 1;
            return;
        }
        at += offset;
        memcpy(&k->phases[i], &at, sizeof at);
    }
}

/* Read what follows the head of an image; `why` says what is wrong with it. */
static inlay_status_t read_program(const inlay_device_t *device, wire_reader_t *r,
                                   uint64_t code_bytes, inlay_program_t *program, const char **why)
{
    const uint32_t n = inlay_wire_read_count(r, MOST_KERNELS);
    uint32_t i;
    *why = "the image is damaged: its code is not all there";
    if (r->is_bad || !code_bytes || code_bytes > (uint64_t)(r->end - r->at) ||
        n > (size_t)(r->end - r->at))
        return INLAY_BUILD_FAILED;
    r->end -= code_bytes;
    program->code_bytes = (size_t)code_bytes;
    program->code = inlay_posix_copy_code(r->end, program->code_bytes);
    *why = "the system has no memory for code";
    if (!program->code) return INLAY_OUT_OF_MEMORY;
    program->kernels = inlay_take(device->host, ((size_t)n + 1) * sizeof *program->kernels);
    *why = "the system has no memory for the table of kernels";
    if (!program->kernels) return INLAY_OUT_OF_MEMORY;
    program->n_kernels = n;
    for (i = 0; i < n; i++) read_kernel(r, &program->kernels[i], program);
    *why = "the image is damaged: its table of kernels does not fit";
    return inlay_wire_is_whole(r) ? INLAY_OK : INLAY_BUILD_FAILED;
}

inlay_status_t inlay_native_load(inlay_device_t *device, const void *image, size_t size,
                                 inlay_program_t **program, char *message, size_t bytes)
{
    static const char magic[8] = {'I', 'N', 'L', 'A', 'Y', 'N', 'C', '1'};
    char needs[WIRE_MOST_TEXT + 1];
    inlay_program_t *made;
    inlay_status_t status;
    const char *why;
    uint64_t code_bytes;
    wire_reader_t r;
    if (size < sizeof magic || memcmp(image, magic, sizeof magic) != 0)
        return inlay_native_refuse(INLAY_BUILD_FAILED,
                                   "this is no image of native code, and a processor runs no other",
                                   message, bytes);
    r.at = (const uint8_t *)image + sizeof magic;
    r.end = (const uint8_t *)image + size;
    r.is_bad = 0;
    inlay_wire_read_text(&r, needs, sizeof needs);
    code_bytes = inlay_wire_read_u64(&r);
    status = r.is_bad ? INLAY_OK : check_needs(device, needs, message, bytes);
    if (status != INLAY_OK) return status;
    made = inlay_take(device->host, sizeof *made);
    if (!made) return INLAY_OUT_OF_MEMORY;
    made->users = 1;
    status = read_program(device, &r, code_bytes, made, &why);
    if (status != INLAY_OK) {
        inlay_native_drop(device, made);
        return inlay_native_refuse(status, why, message, bytes);
    }
    *program = made;
    return INLAY_OK;
}

int32_t inlay_native_find(inlay_device_t *device, inlay_program_t *program, const char *name,
                          uint32_t n_phases)
{
    uint32_t i;
    (void)device;
    for (i = 0; i < program->n_kernels; i++)
        if (strcmp(program->kernels[i].name, name) == 0 && program->kernels[i].n_phases == n_phases)
            return (int32_t)i;
    return -1;
}
