/* Reading a container. Every count, offset and index is compared with what is there before use;
 * container.py is the definition of the format. */
#include "module.h"

#include <string.h>

#include "sha256.h"

#define HEADER_BYTES 64
#define ROW_BYTES 64
#define N_SECTIONS 14
#define FORMAT_VERSION 5
#define PAGE_BYTES 4096
#define CONSTANT_ALIGN 64

enum { STRS, META, POOL, FUNC, CODE, SMAP, CONS, KERN, SHAP, ENTR, DEVS, DIMG, IMAG, CDAT };

static const char NAMES[N_SECTIONS][5] = {"STRS", "META", "POOL", "FUNC", "CODE", "SMAP",
                                          "CONS", "KERN", "SHAP", "ENTR", "DEVS", "DIMG", "IMAG",
                                          "CDAT"};

static inlay_status_t corrupt(inlay_error_t *error, const char *message)
{
    return inlay_fail(error, INLAY_CORRUPT, message, NULL, 0);
}

static uint32_t load32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t load64(const uint8_t *at) { return load32(at) | (uint64_t)load32(at + 4) << 32; }

static uint64_t up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}

/* ------------------------------------------------------------------------ header and table */

static inlay_status_t read_table(const uint8_t *data, size_t bytes, inlay_section_t *sections,
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
        return corrupt(error, "the header is malformed");
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
            return corrupt(error, "a row of the section table is malformed");
        if (offset != up(end, alignment) || offset > bytes || size > bytes - offset)
            return corrupt(error, "a section does not follow the one before");
        sections[i].data = data + offset;
        sections[i].bytes = (size_t)size;
        end = offset + size;
    }
    if (end != bytes) return corrupt(error, "bytes follow the last section");
    return INLAY_OK;
}

static inlay_status_t check_digests(const uint8_t *data, const inlay_section_t *sections,
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
    INLAY_TRY(read_table(data, bytes, sections, error));
    for (i = 0; i < N_SECTIONS; i++) {
        if (strcmp(id, NAMES[i]) != 0) continue;
        *offset = (size_t)(sections[i].data - data);
        *section_bytes = sections[i].bytes;
        return INLAY_OK;
    }
    return inlay_fail(error, INLAY_BAD_ARGUMENT, "no section has this name", NULL, 0);
}

/* ----------------------------------------------------------------------------------- words */

/* A section of words being read. `failed` sticks, and then every read gives 0 or NULL. */
typedef struct reader {
    inlay_module_t *module;
    const uint32_t *words;
    size_t count, at;
    int failed, no_memory;
} reader_t;

static reader_t open_words(inlay_module_t *module, uint32_t section)
{
    reader_t reader;
    memset(&reader, 0, sizeof reader);
    reader.module = module;
    reader.words = (const uint32_t *)(const void *)module->sections[section].data;
    reader.count = module->sections[section].bytes / 4;
    reader.failed = module->sections[section].bytes % 4 != 0;
    return reader;
}

static const uint32_t *take(reader_t *reader, size_t count)
{
    if (reader->failed || count > reader->count - reader->at) {
        reader->failed = 1;
        return NULL;
    }
    reader->at += count;
    return reader->words + reader->at - count;
}

static uint32_t word(reader_t *reader)
{
    const uint32_t *at = take(reader, 1);
    return at ? *at : 0;
}

static uint32_t below(reader_t *reader, uint32_t limit)
{
    uint32_t value = word(reader);
    if (value < limit) return value;
    reader->failed = 1;
    return 0;
}

/* The length of a list whose items are a word at least. */
static uint32_t count(reader_t *reader)
{
    uint32_t value = word(reader);
    if (value <= reader->count - reader->at) return value;
    reader->failed = 1;
    return 0;
}

static int64_t wide(reader_t *reader)
{
    uint64_t low = word(reader), high = word(reader);
    return (int64_t)(low | high << 32);
}

static inlay_text_t text(reader_t *reader)
{
    return inlay_module_string(reader->module, below(reader, reader->module->n_strings));
}

static inlay_formula_t formula(reader_t *reader)
{
    inlay_formula_t made;
    uint32_t step;
    made.steps = below(reader, 1025);
    made.words = reader->words + reader->at;
    for (step = 0; step < made.steps; step++) {
        uint32_t code = word(reader);
        if (code < 2) take(reader, code == 0 ? 2 : 1);
    }
    return made;
}

static void *items(reader_t *reader, size_t n, size_t item_bytes)
{
    void *memory = reader->failed ? NULL : inlay_arena_take(&reader->module->arena, n, item_bytes);
    if (!memory) {
        if (!reader->failed) reader->no_memory = 1;
        reader->failed = 1;
    }
    return memory;
}

static inlay_status_t end(const reader_t *reader, const char *section, inlay_error_t *error)
{
    if (reader->no_memory)
        return inlay_fail(error, INLAY_OUT_OF_MEMORY, "no memory for the tables of an executable",
                          NULL, 0);
    if (!reader->failed && reader->at == reader->count) return INLAY_OK;
    corrupt(error, "section ");
    inlay_say(error, section);
    inlay_say(error, " at word ");
    inlay_say_int(error, (int64_t)reader->at);
    inlay_say(error, " contradicts itself");
    return INLAY_CORRUPT;
}

/* ---------------------------------------------------------------------------------- tables */

static inlay_status_t read_strings(inlay_module_t *module, inlay_error_t *error)
{
    const inlay_section_t *section = &module->sections[STRS];
    const uint32_t *words = (const uint32_t *)(const void *)section->data;
    size_t head, i;
    if (section->bytes < 8) return corrupt(error, "the string table is too short");
    module->n_strings = words[0];
    head = ((size_t)words[0] + 2) * 4;
    if (section->bytes < head || words[1] != 0)
        return corrupt(error, "the string table is shorter than it says");
    for (i = 1; i <= words[0]; i++)
        if (words[i] > words[i + 1]) return corrupt(error, "a string ends before it begins");
    if (words[words[0] + 1] != section->bytes - head)
        return corrupt(error, "the string table does not end where its last string does");
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

int64_t inlay_module_integer(const inlay_module_t *module, uint32_t index)
{
    int64_t value;
    memcpy(&value, module->pool + (size_t)index * 8, 8);
    return value;
}

static inlay_status_t read_meta(inlay_module_t *module, inlay_error_t *error)
{
    reader_t reader = open_words(module, META);
    uint32_t i, n;
    text(&reader);
    for (n = count(&reader), i = 0; i < n; i++) text(&reader);
    module->n_memories = count(&reader);
    for (i = 0; i < module->n_memories; i++) text(&reader);
    for (n = count(&reader), i = 0; i < n && !reader.failed; i++) {
        text(&reader);
        text(&reader);
    }
    if (!module->n_memories) reader.failed = 1;
    return end(&reader, "META", error);
}

/* Memories of a device are not the host's, and of no other device. */
static void read_memories(reader_t *reader, inlay_unopened_t *device)
{
    inlay_module_t *module = reader->module;
    uint32_t i;
    device->n_memories = count(reader);
    device->memories = take(reader, device->n_memories);
    if (!device->n_memories || device->n_memories > MOST_UNITS) reader->failed = 1;
    for (i = 0; i < device->n_memories && !reader->failed; i++) {
        uint32_t memory = device->memories[i];
        if (!memory || memory >= module->n_memories || module->homes[memory].record)
            reader->failed = 1;
        else
            module->homes[memory].record = device;
    }
    device->hardware = take(reader, device->n_memories);
    for (i = 0; i < device->n_memories && !reader->failed; i++)
        if (device->hardware[i] >= module->n_memories) reader->failed = 1;
}

static inlay_status_t read_devices(inlay_module_t *module, inlay_error_t *error)
{
    reader_t reader = open_words(module, DEVS);
    const inlay_section_t *images = &module->sections[DIMG];
    size_t at = 0;
    uint32_t i;
    module->homes = items(&reader, module->n_memories, sizeof *module->homes);
    if (!reader.failed) memset(module->homes, 0, module->n_memories * sizeof *module->homes);
    module->n_devices = count(&reader);
    module->devices = items(&reader, module->n_devices, sizeof *module->devices);
    if (reader.failed) module->n_devices = 0;
    for (i = 0; i < module->n_devices && !reader.failed; i++) {
        inlay_unopened_t *device = &module->devices[i];
        inlay_text_t name = text(&reader), driver = text(&reader), options = text(&reader);
        uint64_t bytes;
        device->name = name.at;
        device->name_bytes = name.bytes;
        device->driver = driver.at;
        device->driver_bytes = driver.bytes;
        device->options = options.at;
        device->options_bytes = options.bytes;
        if (!name.bytes || !driver.bytes) reader.failed = 1;
        read_memories(&reader, device);
        bytes = (uint64_t)wide(&reader);
        if (bytes > images->bytes - at) reader.failed = 1;
        if (reader.failed) break;
        device->image = images->data + at;
        device->image_bytes = (size_t)bytes;
        device->table = NULL;
        at += (size_t)up(bytes, 4);
        if (at > images->bytes) reader.failed = 1;
    }
    if (!reader.failed && at != images->bytes) reader.failed = 1;
    if (reader.failed) module->n_devices = 0;
    return end(&reader, "DEVS", error);
}

static const uint32_t *kinds(reader_t *reader, uint32_t n)
{
    const uint32_t *at = take(reader, n);
    uint32_t i;
    for (i = 0; at && i < n; i++)
        if (!((at[i] >= KIND_INT && at[i] <= KIND_CELL) || at[i] == KIND_ANY)) reader->failed = 1;
    return at;
}

static inlay_status_t read_functions(inlay_module_t *module, inlay_error_t *error)
{
    reader_t table = open_words(module, FUNC), code = open_words(module, CODE);
    reader_t spans = open_words(module, SMAP);
    uint32_t i;
    module->n_functions = count(&table);
    module->functions = items(&table, module->n_functions, sizeof *module->functions);
    for (i = 0; i < module->n_functions && !table.failed; i++) {
        inlay_function_t *f = &module->functions[i];
        f->name = text(&table);
        if (word(&table) != code.at) table.failed = 1;
        f->code_words = word(&table);
        f->frame = below(&table, (1u << 24) + 1);
        f->n_params = count(&table);
        f->params = kinds(&table, f->n_params);
        f->n_results = count(&table);
        f->results = kinds(&table, f->n_results);
        f->code = take(&code, f->code_words);
        f->n_spans = count(&spans);
        f->spans = take(&spans, (size_t)f->n_spans * 2);
        if (code.failed || spans.failed || f->n_params > f->frame || f->n_params > 0xffff ||
            f->n_results > 0xffff)
            table.failed = 1;
    }
    INLAY_TRY(end(&table, "FUNC", error));
    INLAY_TRY(end(&code, "CODE", error));
    return end(&spans, "SMAP", error);
}

static inlay_status_t read_constants(inlay_module_t *module, inlay_error_t *error)
{
    reader_t reader = open_words(module, CONS);
    const inlay_section_t *data = &module->sections[CDAT];
    uint64_t position = 0;
    uint32_t i, axis;
    module->n_constants = count(&reader);
    module->constants = items(&reader, module->n_constants, sizeof *module->constants);
    module->constant_memories =
        items(&reader, module->n_constants, sizeof *module->constant_memories);
    for (i = 0; i < module->n_constants && !reader.failed; i++) {
        uint32_t dtype = below(&reader, INLAY_DTYPES), rank = below(&reader, INLAY_MAX_RANK + 1);
        inlay_view_t *view = items(&reader, 1, sizeof *view + rank * sizeof(int64_t));
        inlay_storage_t *storage = items(&reader, 1, sizeof *storage);
        uint64_t offset, bytes;
        if (reader.failed) break;
        for (axis = 0; axis < rank; axis++) view->dims[axis] = wide(&reader);
        offset = (uint64_t)wide(&reader);
        bytes = (uint64_t)wide(&reader);
        module->constant_memories[i] = below(&reader, module->n_memories);
        if (offset != up(position, CONSTANT_ALIGN) || offset > data->bytes ||
            bytes > data->bytes - offset ||
            inlay_tensor_bytes(dtype, view->dims, rank) != (int64_t)bytes) {
            reader.failed = 1;
            break;
        }
        position = offset + bytes;
        storage->header.count = view->header.count = IMMORTAL;
        storage->header.kind = KIND_STORAGE;
        view->header.kind = KIND_TENSOR;
        /* Never written: the storage is not owned. */
        storage->data = (uint8_t *)(uintptr_t)(data->data + offset);
        storage->bytes = (size_t)bytes;
        view->storage = storage;
        view->data = storage->data;
        view->bytes = (size_t)bytes;
        view->dtype = dtype;
        view->rank = rank;
        module->constants[i] = view;
    }
    return end(&reader, "CONS", error);
}

/* The ports of a function over tensors: those that it reads, then those that it writes. */
static void read_order(reader_t *reader, inlay_kernel_t *kernel)
{
    uint32_t port = 0;
    while (port < kernel->n_ports && kernel->ports[port] == 0) port++;
    kernel->n_reads = port;
    while (port < kernel->n_ports && kernel->ports[port] == 1) port++;
    if (port != kernel->n_ports || kernel->n_ints) reader->failed = 1;
}

static void read_device_body(reader_t *reader, inlay_kernel_t *kernel)
{
    const inlay_module_t *module = reader->module;
    uint32_t i, n_native = 0;
    kernel->memory = below(reader, module->n_memories);
    kernel->symbol = text(reader);
    kernel->n_phases = count(reader);
    kernel->phases = items(reader, kernel->n_phases, sizeof *kernel->phases);
    if (!kernel->symbol.bytes || !kernel->n_phases || kernel->n_phases > MOST_PHASES ||
        (!reader->failed && !module->homes[kernel->memory].record))
        reader->failed = 1;
    for (i = 0; i < kernel->n_phases && !reader->failed; i++) {
        int64_t offset = wide(reader);
        kernel->phases[i].items = formula(reader);
        kernel->phases[i].run = NULL;
        if (!reader->failed && !inlay_formula_check(kernel->phases[i].items, kernel->n_ints))
            reader->failed = 1;
        if (offset == -1) continue;
        n_native++;
        if (offset < 0 || (uint64_t)offset >= module->image_bytes) reader->failed = 1;
        if (!reader->failed && module->image) {
            uintptr_t address = (uintptr_t)module->image + (uintptr_t)offset;
            memcpy(&kernel->phases[i].run, &address, sizeof address);
        }
    }
    if (n_native && n_native != kernel->n_phases) reader->failed = 1;
}

static void read_body(reader_t *reader, inlay_kernel_t *kernel)
{
    inlay_module_t *module = reader->module;
    uint32_t body = below(reader, INLAY_BODIES), i;
    kernel->body = body;
    if (body == INLAY_BODY_DEVICE) {
        read_device_body(reader, kernel);
        return;
    }
    if (body == INLAY_BODY_COPY) {
        if (kernel->n_ints || kernel->n_ports != 2) reader->failed = 1;
        if (!reader->failed && (kernel->ports[0] != 0 || kernel->ports[1] != 1)) reader->failed = 1;
        return;
    }
    if (body == INLAY_BODY_CALLBACK) {
        kernel->symbol = text(reader);
        if (!kernel->symbol.bytes) reader->failed = 1;
        return;
    }
    kernel->n_phases = body == INLAY_BODY_IMAGE ? count(reader) : 1;
    kernel->phases = items(reader, kernel->n_phases, sizeof *kernel->phases);
    if (!kernel->n_phases) reader->failed = 1;
    if (reader->failed) return;
    if (body != INLAY_BODY_IMAGE) {
        kernel->symbol = text(reader);
        if (body == INLAY_BODY_SYMBOL) {
            kernel->phases[0].parallel = below(reader, 2);
        } else { /* a function: where it was found is for tools that look for it again */
            text(reader);
            text(reader);
            read_order(reader, kernel);
        }
        if (!kernel->symbol.bytes) reader->failed = 1;
        return;
    }
    for (i = 0; i < kernel->n_phases && !reader->failed; i++) {
        uint64_t offset = (uint64_t)wide(reader);
        kernel->phases[i].parallel = below(reader, 2);
        if (offset >= module->image_bytes) {
            reader->failed = 1;
            return;
        }
        if (module->image) {
            uintptr_t address = (uintptr_t)module->image + (uintptr_t)offset;
            memcpy(&kernel->phases[i].run, &address, sizeof address);
        }
    }
}

/* Find the kernel that does the work of several calls: the same tensors, one integer more. */
static void read_batch(reader_t *reader, inlay_module_t *module, inlay_kernel_t *kernel)
{
    const inlay_kernel_t *many = NULL;
    uint32_t i;
    if (kernel->batch_number <= module->n_kernels)
        many = &module->kernels[kernel->batch_number - 1];
    if (!many || kernel->body != INLAY_BODY_IMAGE || many->body != INLAY_BODY_IMAGE ||
        many->batch_number || many->n_ports != kernel->n_ports ||
        many->n_ints != kernel->n_ints + 1) {
        reader->failed = 1;
        return;
    }
    for (i = 0; i < kernel->n_ports; i++)
        if (kernel->ports[i] == 2 || kernel->ports[i] != many->ports[i]) reader->failed = 1;
    for (i = 0; i < kernel->n_shared; i++)
        if (kernel->shared[i] >= kernel->n_ports || kernel->ports[kernel->shared[i]] != 0 ||
            (i && kernel->shared[i] <= kernel->shared[i - 1]))
            reader->failed = 1;
    kernel->batch = many;
    module->has_batches = 1;
}

static inlay_status_t read_kernels(inlay_module_t *module, inlay_error_t *error)
{
    reader_t reader = open_words(module, KERN);
    uint32_t i, port;
    module->n_kernels = count(&reader);
    module->kernels = items(&reader, module->n_kernels, sizeof *module->kernels);
    for (i = 0; i < module->n_kernels && !reader.failed; i++) {
        inlay_kernel_t *kernel = &module->kernels[i];
        kernel->name = text(&reader);
        kernel->n_ports = count(&reader);
        kernel->ports = take(&reader, kernel->n_ports);
        kernel->n_ints = below(&reader, 0x10000);
        if (kernel->n_ports > 1024) reader.failed = 1;
        for (port = 0; !reader.failed && port < kernel->n_ports; port++)
            if (kernel->ports[port] > 2) reader.failed = 1;
        read_body(&reader, kernel);
        kernel->workspace_kind = below(&reader, 3);
        if (kernel->workspace_kind) kernel->workspace = formula(&reader);
        if (kernel->workspace_kind &&
            (kernel->body == INLAY_BODY_FUNCTION || kernel->body == INLAY_BODY_COPY))
            reader.failed = 1;
        if (kernel->workspace_kind == 2 && kernel->body == INLAY_BODY_DEVICE) reader.failed = 1;
        kernel->cost = formula(&reader);
        kernel->n_assertions = count(&reader);
        kernel->assertions = take(&reader, kernel->n_assertions);
        for (port = 0; !reader.failed && port < kernel->n_assertions; port++)
            if (kernel->assertions[port] >= module->n_strings) reader.failed = 1;
        kernel->is_ordered = below(&reader, 2);
        kernel->batch_number = word(&reader);
        if (kernel->batch_number) kernel->n_shared = count(&reader);
        kernel->shared = take(&reader, kernel->n_shared);
        if (reader.failed) break;
        if ((kernel->workspace_kind && !inlay_formula_check(kernel->workspace, kernel->n_ints)) ||
            !inlay_formula_check(kernel->cost, kernel->n_ints))
            reader.failed = 1;
        if (kernel->n_ports > module->max_ports) module->max_ports = kernel->n_ports;
        if (kernel->n_ints > module->max_ints) module->max_ints = kernel->n_ints;
    }
    for (i = 0; i < module->n_kernels && !reader.failed; i++)
        if (module->kernels[i].batch_number) read_batch(&reader, module, &module->kernels[i]);
    return end(&reader, "KERN", error);
}

static inlay_status_t read_shapes(inlay_module_t *module, inlay_error_t *error)
{
    reader_t reader = open_words(module, SHAP);
    uint32_t i, k;
    module->n_shapes = count(&reader);
    module->shapes = items(&reader, module->n_shapes, sizeof *module->shapes);
    for (i = 0; i < module->n_shapes && !reader.failed; i++) {
        inlay_shape_t *shape = &module->shapes[i];
        uint64_t offset = (uint64_t)wide(&reader);
        shape->n_results = below(&reader, 0x10000);
        shape->n_inputs = below(&reader, INLAY_MAX_SHAPE_INPUTS + 1);
        shape->inputs = take(&reader, (size_t)shape->n_inputs * 2);
        if (offset >= module->image_bytes) reader.failed = 1;
        for (k = 0; !reader.failed && k < shape->n_inputs; k++)
            if (shape->inputs[2 * k + 1] > INLAY_MAX_RANK) reader.failed = 1;
        if (module->image && !reader.failed) {
            uintptr_t address = (uintptr_t)module->image + (uintptr_t)offset;
            memcpy(&shape->run, &address, sizeof address);
        }
    }
    return end(&reader, "SHAP", error);
}

static void read_scope(reader_t *reader, inlay_scope_t *scope, uint32_t n, uint32_t outer,
                       uint32_t depth, int is_input);

/* Read the specs of a tuple or scope, which see `outer` symbols; counts places in the scope. */
static inlay_spec_t *read_specs(reader_t *reader, uint32_t n, uint32_t outer, uint32_t depth,
                                int is_input, inlay_scope_t *scope)
{
    inlay_spec_t *specs = items(reader, n, sizeof *specs);
    uint32_t i, axis;
    if (n && depth > INLAY_MAX_NESTING) reader->failed = 1;
    for (i = 0; i < n && !reader->failed; i++) {
        inlay_spec_t *spec = &specs[i];
        spec->name = text(reader);
        spec->form = below(reader, FORMS);
        switch (spec->form) {
        case FORM_TENSOR:
            scope->n_leaves++;
            spec->dtype = below(reader, INLAY_DTYPES);
            spec->rank = below(reader, INLAY_MAX_RANK + 1);
            spec->dims = items(reader, spec->rank, sizeof *spec->dims);
            for (axis = 0; axis < spec->rank && !reader->failed; axis++) {
                spec->dims[axis].text = text(reader);
                spec->dims[axis].known = below(reader, 2);
                if (spec->dims[axis].known) spec->dims[axis].value = formula(reader);
            }
            break;
        case FORM_TUPLE:
            spec->n_fields = count(reader);
            spec->fields =
                read_specs(reader, spec->n_fields, outer, depth + 1, is_input, scope);
            break;
        default:
            scope->n_parts++;
            spec->element = items(reader, 1, sizeof *spec->element);
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
static void read_scope(reader_t *reader, inlay_scope_t *scope, uint32_t n, uint32_t outer,
                       uint32_t depth, int is_input)
{
    uint32_t i, axis;
    scope->n = n;
    scope->n_symbols = count(reader);
    if (scope->n_symbols > (is_input ? INLAY_MAX_SYMBOLS - outer : 0)) reader->failed = 1;
    scope->symbols = items(reader, scope->n_symbols, sizeof *scope->symbols);
    for (i = 0; i < scope->n_symbols && !reader->failed; i++) {
        scope->symbols[i].name = text(reader);
        scope->symbols[i].leaf = word(reader);
        scope->symbols[i].axis = word(reader);
        scope->symbols[i].solution = formula(reader);
        if (!reader->failed && !inlay_formula_check(scope->symbols[i].solution, outer + i + 1))
            reader->failed = 1;
    }
    outer += scope->n_symbols;
    scope->specs = read_specs(reader, n, outer, depth, is_input, scope);
    scope->leaves = items(reader, scope->n_leaves, sizeof *scope->leaves);
    scope->parts = items(reader, scope->n_parts, sizeof *scope->parts);
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

static inlay_status_t read_entries(inlay_module_t *module, inlay_error_t *error)
{
    reader_t reader = open_words(module, ENTR);
    uint32_t i, k;
    module->n_entries = count(&reader);
    module->entries = items(&reader, module->n_entries, sizeof *module->entries);
    for (i = 0; i < module->n_entries && !reader.failed; i++) {
        inlay_entry_t *entry = &module->entries[i];
        memset(entry, 0, sizeof *entry);
        entry->name = text(&reader);
        entry->function = word(&reader);
        read_scope(&reader, &entry->inputs, count(&reader), 0, 0, 1);
        read_scope(&reader, &entry->outputs, count(&reader), entry->inputs.n_symbols, 0, 0);
        entry->n_requirements = count(&reader);
        entry->requirements = items(&reader, entry->n_requirements, sizeof *entry->requirements);
        for (k = 0; k < entry->n_requirements && !reader.failed; k++) {
            entry->requirements[k].text = text(&reader);
            entry->requirements[k].value = formula(&reader);
        }
        if (!reader.failed && !entry_is_right(module, entry)) reader.failed = 1;
    }
    return end(&reader, "ENTR", error);
}

/* ------------------------------------------------------------------------------------ open */

static inlay_status_t find_symbols(inlay_module_t *module, inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < module->n_kernels; i++) {
        inlay_kernel_t *kernel = &module->kernels[i];
        if (kernel->body != INLAY_BODY_SYMBOL && kernel->body != INLAY_BODY_FUNCTION) continue;
        if (module->host->symbol)
            kernel->phases[0].run = module->host->symbol(module->host->user, kernel->symbol.at,
                                                         kernel->symbol.bytes);
        if (kernel->phases[0].run) continue;
        inlay_fail(error, INLAY_SYMBOL, "nobody gave the function '", NULL, 0);
        inlay_say_text(error, kernel->symbol);
        inlay_say(error, "' that a kernel needs");
        return INLAY_SYMBOL;
    }
    return INLAY_OK;
}

static inlay_status_t read_all(inlay_module_t *module, inlay_error_t *error)
{
    INLAY_TRY(read_strings(module, error));
    if (module->sections[POOL].bytes % 8) return corrupt(error, "section POOL is not 64-bit");
    module->pool = module->sections[POOL].data;
    module->n_pool = module->sections[POOL].bytes / 8;
    module->image_bytes = module->sections[IMAG].bytes;
    INLAY_TRY(read_meta(module, error));
    INLAY_TRY(read_devices(module, error));
    INLAY_TRY(read_functions(module, error));
    INLAY_TRY(read_constants(module, error));
    INLAY_TRY(read_kernels(module, error));
    INLAY_TRY(read_shapes(module, error));
    INLAY_TRY(read_entries(module, error));
    INLAY_TRY(inlay_verify(module, error));
    INLAY_TRY(find_symbols(module, error));
    return inlay_devices_open(module, error);
}

inlay_status_t inlay_module_open(const uint8_t *data, size_t bytes, const void *image,
                                 int check_constants, const inlay_host_t *host,
                                 inlay_module_t **module, inlay_error_t *error)
{
    inlay_section_t sections[N_SECTIONS];
    inlay_arena_t arena;
    inlay_module_t *made;
    inlay_status_t status;
    const uint16_t one = 1;
    *module = NULL;
    if ((uintptr_t)data % 8 || *(const uint8_t *)&one != 1)
        return inlay_fail(error, INLAY_BAD_ARGUMENT,
                          "an executable is read in place, aligned to 8, on little-endian machines",
                          NULL, 0);
    INLAY_TRY(read_table(data, bytes, sections, error));
    INLAY_TRY(check_digests(data, sections, check_constants, error));
    arena.host = host;
    arena.blocks = NULL;
    made = inlay_arena_take(&arena, 1, sizeof *made);
    if (!made)
        return inlay_fail(error, INLAY_OUT_OF_MEMORY, "no memory for an executable", NULL, 0);
    made->host = host;
    made->arena = arena;
    made->image = image;
    memcpy(made->sections, sections, sizeof sections);
    status = read_all(made, error);
    if (status != INLAY_OK) {
        inlay_module_close(made);
        return status;
    }
    *module = made;
    return INLAY_OK;
}

void inlay_module_close(inlay_module_t *module)
{
    inlay_arena_t arena;
    if (!module) return;
    inlay_devices_close(module);
    arena = module->arena; /* the module itself is in it */
    inlay_arena_close(&arena);
}

int32_t inlay_module_entry(const inlay_module_t *module, const char *name)
{
    uint32_t i;
    size_t bytes = strlen(name);
    for (i = 0; i < module->n_entries; i++)
        if (module->entries[i].name.bytes == bytes &&
            memcmp(module->entries[i].name.at, name, bytes) == 0)
            return (int32_t)i;
    return -1;
}

void inlay_module_arity(const inlay_module_t *module, uint32_t entry, uint32_t *inputs,
                        uint32_t *outputs)
{
    *inputs = *outputs = 0;
    if (entry >= module->n_entries) return;
    *inputs = module->entries[entry].inputs.n;
    *outputs = module->entries[entry].outputs.n;
}

uint32_t inlay_module_input_dtype(const inlay_module_t *module, uint32_t entry, uint32_t input)
{
    const inlay_scope_t *inputs;
    if (entry >= module->n_entries) return INLAY_DTYPES;
    inputs = &module->entries[entry].inputs;
    return input < inputs->n && inputs->specs[input].form == FORM_TENSOR
               ? inputs->specs[input].dtype
               : (uint32_t)INLAY_DTYPES;
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
