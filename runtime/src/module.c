/* A loaded executable: the tables of its sections, read and held against each other. */
#include "container.h"

#include <string.h>

#include "on_request.h"

#define CONSTANT_ALIGN 64
#define MEMORY_KINDS 6
#define MOST_ALIGNMENT (1u << 20)

int64_t inlay_module_integer(const inlay_module_t *module, uint32_t index)
{
    int64_t value;
    memcpy(&value, module->pool + (size_t)index * 8, 8);
    return value;
}

/* Let native code use a feature of the processor, where a system has to be asked. */
static inlay_status_t permit(const inlay_module_t *module, inlay_text_t feature, inlay_error_t *error)
{
    const inlay_host_t *host = module->host;
    if (!module->image || !inlay_is_on_request(feature.at, feature.bytes)) return INLAY_OK;
    if (host->permit && host->permit(host->user, feature.at, feature.bytes)) return INLAY_OK;
    inlay_fail(error, INLAY_PERMISSION, "the native code uses ", NULL, 0);
    inlay_say_text(error, feature);
    inlay_say(error, host->permit ? ", which this system does not let the process use"
                                  : ", for which nobody asks the system: the host has no `permit`");
    return INLAY_PERMISSION;
}

static inlay_status_t read_meta(inlay_module_t *module, inlay_error_t *error)
{
    inlay_reader_t reader = inlay_read_section(module, META);
    uint32_t i, n;
    inlay_read_text(&reader);
    for (n = inlay_read_count(&reader), i = 0; i < n && !reader.failed; i++) {
        const inlay_text_t feature = inlay_read_text(&reader);
        if (!reader.failed) INLAY_TRY(permit(module, feature, error));
    }
    module->n_memories = inlay_read_count(&reader);
    for (i = 0; i < module->n_memories && !reader.failed; i++) {
        uint32_t alignment;
        inlay_read_text(&reader);
        inlay_read_below(&reader, MEMORY_KINDS);
        inlay_read_wide(&reader); /* bytes: a plan keeps within them */
        alignment = inlay_read_word(&reader);
        if (!alignment || alignment > MOST_ALIGNMENT || (alignment & (alignment - 1)))
            reader.failed = 1;
    }
    for (n = inlay_read_count(&reader), i = 0; i < n && !reader.failed; i++) {
        inlay_read_text(&reader);
        inlay_read_text(&reader);
    }
    if (!module->n_memories) reader.failed = 1;
    return inlay_read_end(&reader, "META", error);
}

/* Memories of a device are not the host's, and of no other device. */
static void read_memories(inlay_reader_t *reader, inlay_unopened_t *device)
{
    inlay_module_t *module = reader->module;
    uint32_t i;
    device->n_memories = inlay_read_count(reader);
    device->memories = inlay_read_words(reader, device->n_memories);
    if (!device->n_memories || device->n_memories > MOST_UNITS) reader->failed = 1;
    for (i = 0; i < device->n_memories && !reader->failed; i++) {
        uint32_t memory = device->memories[i];
        if (!memory || memory >= module->n_memories || module->spaces[memory].record)
            reader->failed = 1;
        else
            module->spaces[memory].record = device;
    }
    device->hardware = inlay_read_words(reader, device->n_memories);
    for (i = 0; i < device->n_memories && !reader->failed; i++)
        if (device->hardware[i] >= module->n_memories) reader->failed = 1;
}

static inlay_status_t read_devices(inlay_module_t *module, inlay_error_t *error)
{
    inlay_reader_t reader = inlay_read_section(module, DEVS);
    const inlay_section_t *images = &module->sections[DIMG];
    size_t at = 0;
    uint32_t i;
    module->spaces = inlay_read_items(&reader, module->n_memories, sizeof *module->spaces);
    if (!reader.failed) memset(module->spaces, 0, module->n_memories * sizeof *module->spaces);
    module->n_devices = inlay_read_count(&reader);
    module->devices = inlay_read_items(&reader, module->n_devices, sizeof *module->devices);
    if (reader.failed) module->n_devices = 0;
    for (i = 0; i < module->n_devices && !reader.failed; i++) {
        inlay_unopened_t *device = &module->devices[i];
        inlay_text_t name = inlay_read_text(&reader), driver = inlay_read_text(&reader);
        inlay_text_t options = inlay_read_text(&reader);
        uint64_t bytes;
        device->name = name.at;
        device->name_bytes = name.bytes;
        device->driver = driver.at;
        device->driver_bytes = driver.bytes;
        device->options = options.at;
        device->options_bytes = options.bytes;
        if (!name.bytes || !driver.bytes) reader.failed = 1;
        read_memories(&reader, device);
        bytes = (uint64_t)inlay_read_wide(&reader);
        if (bytes > images->bytes - at) reader.failed = 1;
        if (reader.failed) break;
        device->image = images->data + at;
        device->image_bytes = (size_t)bytes;
        device->table = NULL;
        at += (size_t)inlay_up(bytes, 4);
        if (at > images->bytes) reader.failed = 1;
    }
    if (!reader.failed && at != images->bytes) reader.failed = 1;
    if (reader.failed) module->n_devices = 0;
    return inlay_read_end(&reader, "DEVS", error);
}

static const uint32_t *kinds(inlay_reader_t *reader, uint32_t n)
{
    const uint32_t *at = inlay_read_words(reader, n);
    uint32_t i;
    for (i = 0; at && i < n; i++)
        if (!((at[i] >= KIND_INT && at[i] <= KIND_CELL) || at[i] == KIND_ANY)) reader->failed = 1;
    return at;
}

static inlay_status_t read_functions(inlay_module_t *module, inlay_error_t *error)
{
    inlay_reader_t table = inlay_read_section(module, FUNC), code = inlay_read_section(module, CODE);
    inlay_reader_t spans = inlay_read_section(module, SMAP);
    uint32_t i;
    module->n_functions = inlay_read_count(&table);
    module->functions = inlay_read_items(&table, module->n_functions, sizeof *module->functions);
    for (i = 0; i < module->n_functions && !table.failed; i++) {
        inlay_function_t *f = &module->functions[i];
        f->name = inlay_read_text(&table);
        if (inlay_read_word(&table) != code.at) table.failed = 1;
        f->code_words = inlay_read_word(&table);
        f->frame = inlay_read_below(&table, (1u << 24) + 1);
        f->effects = inlay_read_below(&table, (EFFECT_ORDERED | EFFECT_CELLS) + 1);
        f->n_params = inlay_read_count(&table);
        f->params = kinds(&table, f->n_params);
        f->n_results = inlay_read_count(&table);
        f->results = kinds(&table, f->n_results);
        f->code = inlay_read_words(&code, f->code_words);
        f->n_spans = inlay_read_count(&spans);
        f->spans = inlay_read_words(&spans, (size_t)f->n_spans * 2);
        if (code.failed || spans.failed || f->n_params > f->frame || f->n_params > 0xffff ||
            f->n_results > 0xffff)
            table.failed = 1;
    }
    INLAY_TRY(inlay_read_end(&table, "FUNC", error));
    INLAY_TRY(inlay_read_end(&code, "CODE", error));
    return inlay_read_end(&spans, "SMAP", error);
}

static inlay_status_t read_constants(inlay_module_t *module, inlay_error_t *error)
{
    inlay_reader_t reader = inlay_read_section(module, CONS);
    const inlay_section_t *data = &module->sections[CDAT];
    uint64_t position = 0;
    uint32_t i, axis;
    module->n_constants = inlay_read_count(&reader);
    module->constants = inlay_read_items(&reader, module->n_constants, sizeof *module->constants);
    module->constant_memories =
        inlay_read_items(&reader, module->n_constants, sizeof *module->constant_memories);
    for (i = 0; i < module->n_constants && !reader.failed; i++) {
        uint32_t dtype = inlay_read_below(&reader, INLAY_DTYPES);
        uint32_t rank = inlay_read_below(&reader, INLAY_MAX_RANK + 1);
        inlay_view_t *view = inlay_read_items(&reader, 1, sizeof *view + rank * sizeof(int64_t));
        inlay_storage_t *storage = inlay_read_items(&reader, 1, sizeof *storage);
        uint64_t offset, bytes;
        if (reader.failed) break;
        for (axis = 0; axis < rank; axis++) view->dims[axis] = inlay_read_wide(&reader);
        offset = (uint64_t)inlay_read_wide(&reader);
        bytes = (uint64_t)inlay_read_wide(&reader);
        module->constant_memories[i] = inlay_read_below(&reader, module->n_memories);
        if (offset != inlay_up(position, CONSTANT_ALIGN) || offset > data->bytes ||
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
    return inlay_read_end(&reader, "CONS", error);
}

/* The ports of a function over tensors: those that it reads, then those that it writes. */
static void read_order(inlay_reader_t *reader, inlay_kernel_t *kernel)
{
    uint32_t port = 0;
    while (port < kernel->n_ports && kernel->ports[port] == 0) port++;
    kernel->n_reads = port;
    while (port < kernel->n_ports && kernel->ports[port] == 1) port++;
    if (port != kernel->n_ports || kernel->n_ints) reader->failed = 1;
}

static void read_device_body(inlay_reader_t *reader, inlay_kernel_t *kernel)
{
    const inlay_module_t *module = reader->module;
    uint32_t i, n_native = 0;
    kernel->memory = inlay_read_below(reader, module->n_memories);
    kernel->symbol = inlay_read_text(reader);
    kernel->n_phases = inlay_read_count(reader);
    kernel->phases = inlay_read_items(reader, kernel->n_phases, sizeof *kernel->phases);
    if (!kernel->symbol.bytes || !kernel->n_phases || kernel->n_phases > MOST_PHASES ||
        (!reader->failed && !module->spaces[kernel->memory].record))
        reader->failed = 1;
    for (i = 0; i < kernel->n_phases && !reader->failed; i++) {
        int64_t offset = inlay_read_wide(reader);
        kernel->phases[i].items = inlay_read_formula(reader);
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

static void read_body(inlay_reader_t *reader, inlay_kernel_t *kernel)
{
    inlay_module_t *module = reader->module;
    uint32_t body = inlay_read_below(reader, INLAY_BODIES), i;
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
        kernel->symbol = inlay_read_text(reader);
        if (!kernel->symbol.bytes) reader->failed = 1;
        return;
    }
    kernel->n_phases = body == INLAY_BODY_IMAGE ? inlay_read_count(reader) : 1;
    kernel->phases = inlay_read_items(reader, kernel->n_phases, sizeof *kernel->phases);
    if (!kernel->n_phases) reader->failed = 1;
    if (reader->failed) return;
    if (body != INLAY_BODY_IMAGE) {
        kernel->symbol = inlay_read_text(reader);
        if (body == INLAY_BODY_SYMBOL) {
            kernel->phases[0].parallel = inlay_read_below(reader, 2);
        } else { /* a function: where it was found is for tools that look for it again */
            inlay_read_text(reader);
            inlay_read_text(reader);
            read_order(reader, kernel);
        }
        if (!kernel->symbol.bytes) reader->failed = 1;
        return;
    }
    for (i = 0; i < kernel->n_phases && !reader->failed; i++) {
        uint64_t offset = (uint64_t)inlay_read_wide(reader);
        kernel->phases[i].parallel = inlay_read_below(reader, INLAY_MOST_PIECES + 1);
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
static void read_batch(inlay_reader_t *reader, inlay_module_t *module, inlay_kernel_t *kernel)
{
    const inlay_kernel_t *many = NULL;
    uint32_t i;
    if (kernel->batch_number <= module->n_kernels)
        many = &module->kernels[kernel->batch_number - 1];
    if (!many || kernel->body != INLAY_BODY_IMAGE || many->body != INLAY_BODY_IMAGE ||
        many->batch_number || many->n_ports != kernel->n_ports ||
        many->n_ints != kernel->n_ints + 1 || many->workspace_kind == 3 ||
        kernel->workspace_kind == 3) {
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

/* Which phases touch each tensor: those that there are. */
static void read_spans(inlay_reader_t *reader, inlay_kernel_t *kernel)
{
    const uint32_t *spans = inlay_read_words(reader, 2 * (size_t)kernel->n_ports);
    uint32_t i;
    if (kernel->body != INLAY_BODY_IMAGE) reader->failed = 1;
    for (i = 0; i < kernel->n_ports && !reader->failed; i++)
        if (spans[2 * i] > spans[2 * i + 1] || spans[2 * i + 1] >= kernel->n_phases) reader->failed = 1;
    kernel->spans = spans;
}

/* What is said of tensors: bytes that may be touched of each, and when. */
static void read_touched(inlay_reader_t *reader, inlay_kernel_t *kernel)
{
    uint32_t i, said = inlay_read_below(reader, 4);
    kernel->sizes = NULL;
    kernel->spans = NULL;
    if (!kernel->n_ports) return;
    if (said & 1) kernel->sizes = inlay_read_items(reader, kernel->n_ports, sizeof *kernel->sizes);
    for (i = 0; (said & 1) && i < kernel->n_ports && !reader->failed; i++) {
        kernel->sizes[i] = inlay_read_formula(reader);
        if (!reader->failed && !inlay_formula_check(kernel->sizes[i], kernel->n_ints))
            reader->failed = 1;
    }
    if (said & 2) read_spans(reader, kernel);
}

static inlay_status_t read_kernels(inlay_module_t *module, inlay_error_t *error)
{
    inlay_reader_t reader = inlay_read_section(module, KERN);
    uint32_t i, port;
    module->n_kernels = inlay_read_count(&reader);
    module->kernels = inlay_read_items(&reader, module->n_kernels, sizeof *module->kernels);
    for (i = 0; i < module->n_kernels && !reader.failed; i++) {
        inlay_kernel_t *kernel = &module->kernels[i];
        kernel->name = inlay_read_text(&reader);
        kernel->n_ports = inlay_read_count(&reader);
        kernel->ports = inlay_read_words(&reader, kernel->n_ports);
        kernel->n_ints = inlay_read_below(&reader, 0x10000);
        if (kernel->n_ports > 1024) reader.failed = 1;
        for (port = 0; !reader.failed && port < kernel->n_ports; port++)
            if (kernel->ports[port] > 2) reader.failed = 1;
        read_body(&reader, kernel);
        kernel->workspace_kind = inlay_read_below(&reader, 4);
        if (kernel->workspace_kind) kernel->workspace = inlay_read_formula(&reader);
        if (kernel->workspace_kind &&
            (kernel->body == INLAY_BODY_FUNCTION || kernel->body == INLAY_BODY_COPY))
            reader.failed = 1;
        if (kernel->workspace_kind >= 2 && kernel->body == INLAY_BODY_DEVICE) reader.failed = 1;
        if (kernel->workspace_kind == 3 && !reader.failed &&
            (kernel->body > INLAY_BODY_SYMBOL || !kernel->n_ports ||
             kernel->ports[kernel->n_ports - 1] != 1))
            reader.failed = 1;
        kernel->cost = inlay_read_formula(&reader);
        kernel->n_assertions = inlay_read_count(&reader);
        kernel->assertions = inlay_read_words(&reader, kernel->n_assertions);
        for (port = 0; !reader.failed && port < kernel->n_assertions; port++)
            if (kernel->assertions[port] >= module->n_strings) reader.failed = 1;
        kernel->is_ordered = inlay_read_below(&reader, 2);
        kernel->batch_number = inlay_read_word(&reader);
        if (kernel->batch_number) kernel->n_shared = inlay_read_count(&reader);
        kernel->shared = inlay_read_words(&reader, kernel->n_shared);
        read_touched(&reader, kernel);
        if (reader.failed) break;
        if ((kernel->workspace_kind && !inlay_formula_check(kernel->workspace, kernel->n_ints)) ||
            !inlay_formula_check(kernel->cost, kernel->n_ints))
            reader.failed = 1;
        if (kernel->n_ports > module->max_ports) module->max_ports = kernel->n_ports;
        if (kernel->n_ints > module->max_ints) module->max_ints = kernel->n_ints;
    }
    for (i = 0; i < module->n_kernels && !reader.failed; i++)
        if (module->kernels[i].batch_number) read_batch(&reader, module, &module->kernels[i]);
    return inlay_read_end(&reader, "KERN", error);
}

static inlay_status_t read_shapes(inlay_module_t *module, inlay_error_t *error)
{
    inlay_reader_t reader = inlay_read_section(module, SHAP);
    uint32_t i, k;
    module->n_shapes = inlay_read_count(&reader);
    module->shapes = inlay_read_items(&reader, module->n_shapes, sizeof *module->shapes);
    for (i = 0; i < module->n_shapes && !reader.failed; i++) {
        inlay_shape_t *shape = &module->shapes[i];
        uint64_t offset = (uint64_t)inlay_read_wide(&reader);
        shape->n_results = inlay_read_below(&reader, 0x10000);
        shape->n_inputs = inlay_read_below(&reader, INLAY_MAX_SHAPE_INPUTS + 1);
        shape->inputs = inlay_read_words(&reader, (size_t)shape->n_inputs * 2);
        if (offset >= module->image_bytes) reader.failed = 1;
        for (k = 0; !reader.failed && k < shape->n_inputs; k++)
            if (shape->inputs[2 * k + 1] > INLAY_MAX_RANK) reader.failed = 1;
        if (module->image && !reader.failed) {
            uintptr_t address = (uintptr_t)module->image + (uintptr_t)offset;
            memcpy(&shape->run, &address, sizeof address);
        }
    }
    return inlay_read_end(&reader, "SHAP", error);
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
    INLAY_TRY(inlay_strings_read(module, error));
    if (module->sections[POOL].bytes % 8)
        return inlay_container_corrupt(error, "section POOL is not 64-bit");
    module->pool = module->sections[POOL].data;
    module->n_pool = module->sections[POOL].bytes / 8;
    module->image_bytes = module->sections[IMAG].bytes;
    INLAY_TRY(read_meta(module, error));
    INLAY_TRY(read_devices(module, error));
    INLAY_TRY(read_functions(module, error));
    INLAY_TRY(read_constants(module, error));
    INLAY_TRY(read_kernels(module, error));
    INLAY_TRY(read_shapes(module, error));
    INLAY_TRY(inlay_read_entries(module, error));
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
    INLAY_TRY(inlay_container_table(data, bytes, sections, error));
    INLAY_TRY(inlay_container_digests(data, sections, check_constants, error));
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
