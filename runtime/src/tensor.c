/* Instructions that make, view, copy and read tensors. Messages are those of interp.py. */
#include "machine.h"

#include <string.h>

static inlay_view_t *view_of(const inlay_slot_t *slot)
{
    return (inlay_view_t *)(void *)slot->as.object;
}

static inlay_status_t bad_dims(inlay_activation_t *m, int64_t bytes, const int64_t *dims,
                               uint32_t rank)
{
    uint32_t i = 0;
    if (bytes == -2)
        return inlay_fail(m->error, INLAY_BAD_DIMS, "a tensor is larger than any memory", NULL, 0);
    while (i < rank && dims[i] >= 0) i++;
    return inlay_fail(m->error, INLAY_BAD_DIMS, "a tensor cannot have the dim {1}", dims + i, 1);
}

static void say_dims(inlay_activation_t *m, const int64_t *dims, uint32_t rank)
{
    uint32_t i;
    inlay_say(m->error, "[");
    for (i = 0; i < rank; i++) {
        if (i) inlay_say(m->error, ", ");
        inlay_say_int(m->error, dims[i]);
    }
    inlay_say(m->error, "]");
}

/* "[2, 3] cannot be <what> [6, 7]" */
static inlay_status_t unlike(inlay_activation_t *m, const inlay_view_t *a, const char *what,
                             const int64_t *dims, uint32_t rank)
{
    inlay_fail(m->error, INLAY_BAD_DIMS, "", NULL, 0);
    say_dims(m, a->dims, a->rank);
    inlay_say(m->error, what);
    say_dims(m, dims, rank);
    return INLAY_BAD_DIMS;
}

/* Read n integers from the stack into dims; fail on other kinds. */
static inlay_status_t read_dims(inlay_activation_t *m, const inlay_slot_t *slots, uint32_t n,
                                int64_t *dims)
{
    uint32_t i;
    INLAY_TRY(inlay_need_ints(m, slots, n));
    for (i = 0; i < n; i++) dims[i] = slots[i].as.integer;
    return INLAY_OK;
}

static void set(inlay_slot_t *slot, uint32_t kind, inlay_object_t *object)
{
    slot->tag = kind;
    slot->as.object = object;
}

/* A view that takes over one reference to the storage. */
static inlay_view_t *new_view(inlay_activation_t *m, inlay_storage_t *storage, uint8_t *data,
                              uint32_t dtype, const int64_t *dims, uint32_t rank, size_t bytes)
{
    inlay_view_t *view = inlay_heap_view(&m->heap, rank);
    if (!view) {
        inlay_no_memory(m);
        return NULL;
    }
    view->storage = storage;
    view->data = data;
    view->bytes = bytes;
    view->dtype = dtype;
    if (rank) memcpy(view->dims, dims, rank * sizeof *dims);
    return view;
}

/* A view that is no view of another tensor. */
static inlay_view_t *named(inlay_activation_t *m, inlay_view_t *view)
{
    (void)m;
    if (view) inlay_race_name(&m->heap, view);
    return view;
}

/* A new storage. Where the host has no more memory, what commands in flight hold may be enough. */
static inlay_storage_t *new_storage_in(inlay_activation_t *m, uint32_t memory, size_t bytes,
                                       size_t align)
{
    const inlay_space_t *space = &m->module->spaces[memory];
    inlay_storage_t *storage = NULL;
    int is_again;
    for (is_again = 0; is_again < 2; is_again++) {
        storage = space->driver ? inlay_heap_lodge(&m->heap, space, bytes)
                               : inlay_heap_storage(&m->heap, bytes, align);
        if (storage || !m->issuer.in_flight || inlay_progress_drain(m) != INLAY_OK) break;
    }
    if (storage || m->issuer.is_stopped) return storage;
    if (!space->driver) inlay_no_memory(m);
    else inlay_no_device_memory(m, space, bytes);
    return NULL;
}

/* A device that gives none may have no memory, or not be there any more. */
static inlay_status_t why_no_storage(const inlay_activation_t *m)
{
    return m->issuer.is_stopped ? INLAY_OUT_OF_MEMORY : m->error->status;
}

static inlay_storage_t *new_storage(inlay_activation_t *m, size_t bytes, size_t align)
{
    return new_storage_in(m, 0, bytes, align);
}

/* Fail unless the host can read the bytes of a tensor. */
static inlay_status_t need_host(inlay_activation_t *m, const inlay_view_t *view)
{
    return view->storage->space ? inlay_not_in_host(m, view->storage->space) : INLAY_OK;
}

/* A tensor in a storage of its own, of at least `capacity` bytes. */
static inlay_view_t *new_tensor(inlay_activation_t *m, uint32_t dtype, const int64_t *dims,
                                uint32_t rank, size_t bytes, size_t capacity, size_t align)
{
    inlay_storage_t *storage = new_storage(m, capacity > bytes ? capacity : bytes, align);
    if (!storage) return NULL;
    return named(m, new_view(m, storage, storage->data, dtype, dims, rank, bytes));
}

inlay_status_t inlay_op_storage(inlay_activation_t *m, const uint32_t *operands)
{
    inlay_slot_t *top = m->sp - 1;
    inlay_storage_t *storage;
    INLAY_TRY(inlay_need_ints(m, top, 1));
    if (top->as.integer < 0 || top->as.integer > INLAY_MAX_STORAGE)
        return inlay_fail(m->error, INLAY_BAD_DIMS, "a storage cannot have {1} bytes",
                          &top->as.integer, 1);
    storage = new_storage_in(m, operands[0], (size_t)top->as.integer, operands[1]);
    if (!storage) return why_no_storage(m);
    set(top, KIND_STORAGE, &storage->header);
    return INLAY_OK;
}

inlay_status_t inlay_op_tensor(inlay_activation_t *m, const uint32_t *operands)
{
    uint32_t dtype = operands[0], rank = operands[1];
    inlay_slot_t *at = m->sp - rank - 2;
    int64_t dims[INLAY_MAX_RANK], offset, bytes;
    inlay_storage_t *storage;
    inlay_view_t *view;
    INLAY_TRY(inlay_need_ints(m, at + 1, rank + 1));
    if (at->tag != KIND_STORAGE) return inlay_wrong_kind(m, KIND_STORAGE, at->tag);
    INLAY_TRY(read_dims(m, at + 2, rank, dims));
    storage = (inlay_storage_t *)(void *)at->as.object;
    offset = at[1].as.integer;
    bytes = inlay_tensor_bytes(dtype, dims, rank);
    if (bytes < 0) return bad_dims(m, bytes, dims, rank);
    if (offset < 0 || offset % inlay_dtype_bytes[dtype] || (uint64_t)offset > storage->bytes ||
        (uint64_t)bytes > storage->bytes - (uint64_t)offset) {
        int64_t values[3];
        values[0] = bytes;
        values[1] = offset;
        values[2] = (int64_t)storage->bytes;
        return inlay_fail(m->error, INLAY_BAD_DIMS,
                          "{1} bytes at {2} do not fit a storage of {3}", values, 3);
    }
    /* The view takes over the stack's reference. */
    view = named(m, new_view(m, storage, storage->data + offset, dtype, dims, rank, (size_t)bytes));
    if (!view) return INLAY_OUT_OF_MEMORY;
    set(at, KIND_TENSOR, &view->header);
    m->sp = at + 1;
    return INLAY_OK;
}

inlay_status_t inlay_op_allocate(inlay_activation_t *m, const uint32_t *operands)
{
    uint32_t dtype = operands[1], rank = operands[2];
    inlay_slot_t *at = m->sp - rank;
    int64_t dims[INLAY_MAX_RANK], bytes;
    inlay_storage_t *storage;
    inlay_view_t *view;
    INLAY_TRY(read_dims(m, at, rank, dims));
    bytes = inlay_tensor_bytes(dtype, dims, rank);
    if (bytes < 0) return bad_dims(m, bytes, dims, rank);
    storage = new_storage_in(m, operands[0], (size_t)bytes, BLOCK_ALIGN);
    if (!storage) return why_no_storage(m);
    view = named(m, new_view(m, storage, storage->data, dtype, dims, rank, (size_t)bytes));
    if (!view) return INLAY_OUT_OF_MEMORY;
    set(at, KIND_TENSOR, &view->header);
    m->sp = at + 1;
    return INLAY_OK;
}

inlay_status_t inlay_op_dims(inlay_activation_t *m, uint32_t rank)
{
    inlay_slot_t *at = m->sp - 1;
    inlay_view_t *view;
    uint32_t i;
    if (at->tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, at->tag);
    view = view_of(at);
    if (view->rank != rank) {
        int64_t values[2];
        values[0] = view->rank;
        values[1] = rank;
        return inlay_fail(m->error, INLAY_KIND_MISMATCH,
                          "a tensor of rank {1} where {2} is needed", values, 2);
    }
    for (i = 0; i < rank; i++) {
        at[i].tag = KIND_INT;
        at[i].as.integer = view->dims[i];
    }
    inlay_release(&m->heap, &view->header);
    m->sp = at + rank;
    return INLAY_OK;
}

/* Replace the tensor at `at` by a view into its storage. */
static inlay_status_t narrow(inlay_activation_t *m, inlay_slot_t *at, size_t offset,
                             const int64_t *dims, uint32_t rank, size_t bytes)
{
    inlay_view_t *view = view_of(at), *made;
    made = new_view(m, view->storage, view->data + offset, view->dtype, dims, rank, bytes);
    if (!made) return INLAY_OUT_OF_MEMORY;
    inlay_race_same(made, view);
    inlay_retain(&view->storage->header);
    inlay_release(&m->heap, &view->header);
    set(at, KIND_TENSOR, &made->header);
    m->sp = at + 1;
    return INLAY_OK;
}

inlay_status_t inlay_op_reshape(inlay_activation_t *m, const uint32_t *operands)
{
    uint32_t rank = operands[0];
    inlay_slot_t *at = m->sp - rank - 1;
    int64_t dims[INLAY_MAX_RANK], bytes;
    inlay_view_t *view;
    INLAY_TRY(read_dims(m, at + 1, rank, dims));
    if (at->tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, at->tag);
    view = view_of(at);
    bytes = inlay_tensor_bytes(view->dtype, dims, rank);
    if (bytes < 0) return bad_dims(m, bytes, dims, rank);
    if ((size_t)bytes != view->bytes) return unlike(m, view, " cannot be reshaped to ", dims, rank);
    return narrow(m, at, 0, dims, rank, view->bytes);
}

inlay_status_t inlay_op_rows(inlay_activation_t *m, int is_single)
{
    inlay_slot_t *at = m->sp - (is_single ? 2 : 3);
    int64_t dims[INLAY_MAX_RANK], start, n, values[3];
    inlay_view_t *view;
    size_t row;
    INLAY_TRY(inlay_need_ints(m, at + 1, is_single ? 1 : 2));
    if (at->tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, at->tag);
    view = view_of(at);
    start = at[1].as.integer;
    n = is_single ? 1 : at[2].as.integer;
    if (view->rank == 0)
        return inlay_fail(m->error, INLAY_OUT_OF_RANGE, "a tensor of rank 0 has no rows", NULL, 0);
    if (start < 0 || n < 0 || start > view->dims[0] || n > view->dims[0] - start) {
        values[0] = start;
        values[2] = view->dims[0];
        inlay_fail(m->error, INLAY_OUT_OF_RANGE, "rows {1} to ", values, 1);
        /* The end need not fit 64 bits; then it is far beyond anyway. */
        if (!inlay_add(start, n, &values[1])) values[1] = INT64_MAX;
        inlay_say_int(m->error, values[1]);
        inlay_say(m->error, " of a tensor of ");
        inlay_say_int(m->error, values[2]);
        return INLAY_OUT_OF_RANGE;
    }
    row = view->dims[0] ? view->bytes / (size_t)view->dims[0] : 0;
    if (is_single)
        return narrow(m, at, (size_t)start * row, view->dims + 1, view->rank - 1, row);
    memcpy(dims, view->dims, view->rank * sizeof *dims);
    dims[0] = n;
    return narrow(m, at, (size_t)start * row, dims, view->rank, (size_t)n * row);
}

/* Whether nothing else refers to the bytes of a tensor whose reference we hold. */
static int is_unique(const inlay_view_t *view)
{
    return view->header.count == 1 && view->storage->header.count == 1 &&
           inlay_may_write(view->storage);
}

static inlay_status_t need_tensors(inlay_activation_t *m, const inlay_slot_t *a,
                                   const inlay_slot_t *b)
{
    /* The top one first, as the reference interpreter does. */
    if (b->tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, b->tag);
    if (a->tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, a->tag);
    return INLAY_OK;
}

/* Copy all of a tensor into another one. */
static inlay_status_t copy(inlay_activation_t *m, const inlay_view_t *to, uint8_t *at,
                           const inlay_view_t *from)
{
    INLAY_TRY(inlay_race_tensor(m, from, from->data, from->bytes, NULL, 0));
    INLAY_TRY(inlay_race_tensor(m, to, at, from->bytes, NULL, 1));
    m->heap.copied += from->bytes;
    return inlay_issue_copy(m, to->storage, at, from->storage, from->data, from->bytes);
}

/* Whether more can be put behind a tensor where it is: nobody else sees it, and its storage has room. */
static int has_room(const inlay_view_t *view, size_t bytes)
{
    const inlay_storage_t *storage = view->storage;
    size_t room = storage->capacity - (size_t)(view->data - storage->data);
    return room - view->bytes >= bytes &&
           (is_unique(view) || (view->header.count == 1 && storage->header.count == 1 &&
                                storage->owned == STORAGE_STATE));
}

/* Add the bytes of the tensor on top to the end of the one below it, which grows by so much along an
 * axis: in place where it has room. */
static inlay_status_t lengthen(inlay_activation_t *m, uint32_t axis, int64_t by)
{
    inlay_slot_t *at = m->sp - 2;
    inlay_view_t *view = view_of(at), *rows = view_of(at + 1), *made;
    int64_t dims[INLAY_MAX_RANK];
    INLAY_TRY(need_host(m, view));
    INLAY_TRY(need_host(m, rows));
    if (!has_room(view, rows->bytes)) {
        memcpy(dims, view->dims, view->rank * sizeof *dims);
        dims[axis] += by;
        made = new_tensor(m, view->dtype, dims, view->rank, view->bytes + rows->bytes,
                          2 * view->bytes, inlay_is_state(view->storage) ? INLAY_STATE_ALIGN : BLOCK_ALIGN);
        if (!made) return INLAY_OUT_OF_MEMORY;
        INLAY_TRY(copy(m, made, made->data, view));
        INLAY_TRY(copy(m, made, made->data + view->bytes, rows));
        inlay_release(&m->heap, &view->header);
        set(at, KIND_TENSOR, &made->header);
    } else {
        INLAY_TRY(copy(m, view, view->data + view->bytes, rows));
        view->bytes += rows->bytes;
        view->dims[axis] += by;
    }
    inlay_release(&m->heap, &rows->header);
    m->sp--;
    return INLAY_OK;
}

inlay_status_t inlay_op_append(inlay_activation_t *m)
{
    const inlay_slot_t *at = m->sp - 2;
    const inlay_view_t *view, *row;
    INLAY_TRY(need_tensors(m, at, at + 1));
    view = view_of(at);
    row = view_of(at + 1);
    if (row->dtype != view->dtype || view->rank != row->rank + 1 ||
        memcmp(row->dims, view->dims + 1, row->rank * sizeof *row->dims) != 0)
        return unlike(m, row, " cannot be added as a row to ", view->dims, view->rank);
    return lengthen(m, 0, 1);
}

inlay_status_t inlay_op_extend(inlay_activation_t *m, uint32_t axis)
{
    const inlay_slot_t *at = m->sp - 2;
    const inlay_view_t *view, *rows;
    uint32_t i;
    int fits;
    INLAY_TRY(need_tensors(m, at, at + 1));
    view = view_of(at);
    rows = view_of(at + 1);
    fits = rows->dtype == view->dtype && rows->rank == view->rank && axis < view->rank;
    for (i = 0; fits && i < view->rank; i++)
        fits = i == axis || (rows->dims[i] == view->dims[i] && (i > axis || view->dims[i] == 1));
    if (!fits) return unlike(m, rows, " cannot be joined to the end of ", view->dims, view->rank);
    return lengthen(m, axis, rows->dims[axis]);
}

inlay_status_t inlay_op_own(inlay_activation_t *m)
{
    inlay_slot_t *at = m->sp - 1;
    inlay_view_t *view, *made;
    if (at->tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, at->tag);
    view = view_of(at);
    if (is_unique(view)) return INLAY_OK;
    INLAY_TRY(need_host(m, view));
    if (inlay_race_spoils(m, SABOTAGE_VIEW)) {
        made = named(m, new_view(m, view->storage, view->data, view->dtype, view->dims, view->rank,
                                 view->bytes));
        if (!made) return INLAY_OUT_OF_MEMORY;
        inlay_retain(&view->storage->header);
    } else {
        made = new_tensor(m, view->dtype, view->dims, view->rank, view->bytes, 0, BLOCK_ALIGN);
        if (!made) return INLAY_OUT_OF_MEMORY;
        INLAY_TRY(copy(m, made, made->data, view));
    }
    inlay_release(&m->heap, &view->header);
    set(at, KIND_TENSOR, &made->header);
    return INLAY_OK;
}

inlay_status_t inlay_op_assign(inlay_activation_t *m)
{
    inlay_slot_t *at = m->sp - 2;
    inlay_view_t *target, *source;
    INLAY_TRY(need_tensors(m, at, at + 1));
    target = view_of(at);
    source = view_of(at + 1);
    if (source->dtype != target->dtype || source->rank != target->rank ||
        memcmp(source->dims, target->dims, source->rank * sizeof *source->dims) != 0)
        return unlike(m, source, " cannot be assigned to ", target->dims, target->rank);
    if (!inlay_may_write(target->storage))
        return inlay_fail(m->error, INLAY_READ_ONLY,
                          "an input or constant would be written", NULL, 0);
    INLAY_TRY(need_host(m, target));
    INLAY_TRY(need_host(m, source));
    INLAY_TRY(copy(m, target, target->data, source));
    inlay_release(&m->heap, &source->header);
    inlay_release(&m->heap, &target->header);
    m->sp -= 2;
    return INLAY_OK;
}

/* -------------------------------------------------------------------------------- integers */

/* Element i as an integer; 0 where it does not fit. */
static int load(const inlay_view_t *view, size_t i, int64_t *value)
{
    const uint8_t *at = view->data + i * inlay_dtype_bytes[view->dtype];
    int16_t i16;
    int32_t i32;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (view->dtype) {
    case INLAY_BOOL: *value = *at != 0; return 1;
    case INLAY_I8: *value = (int8_t)*at; return 1;
    case INLAY_U8: *value = *at; return 1;
    case INLAY_I16: memcpy(&i16, at, 2); *value = i16; return 1;
    case INLAY_U16: memcpy(&u16, at, 2); *value = u16; return 1;
    case INLAY_I32: memcpy(&i32, at, 4); *value = i32; return 1;
    case INLAY_U32: memcpy(&u32, at, 4); *value = u32; return 1;
    case INLAY_I64: memcpy(value, at, 8); return 1;
    default: memcpy(&u64, at, 8); *value = (int64_t)u64; return u64 <= INT64_MAX;
    }
}

static const char *const DTYPE_NAMES[INLAY_DTYPES] = {
    "bool", "i8",  "i16", "i32",  "i64", "u8",  "u16",
    "u32",  "u64", "f16", "bf16", "f32", "f64", "string"};

inlay_status_t inlay_op_read_ints(inlay_activation_t *m, uint32_t n)
{
    inlay_slot_t *at = m->sp - 1;
    inlay_view_t *view;
    uint32_t i;
    int64_t values[2];
    if (at->tag != KIND_TENSOR) return inlay_wrong_kind(m, KIND_TENSOR, at->tag);
    view = view_of(at);
    if (view->dtype >= INLAY_F16) {
        inlay_fail(m->error, INLAY_KIND_MISMATCH, "a tensor of ", NULL, 0);
        inlay_say(m->error, DTYPE_NAMES[view->dtype]);
        inlay_say(m->error, " holds no integers");
        return INLAY_KIND_MISMATCH;
    }
    values[0] = n;
    values[1] = (int64_t)(view->bytes / inlay_dtype_bytes[view->dtype]);
    if (values[0] != values[1])
        return inlay_fail(m->error, INLAY_BAD_DIMS,
                          "{1} integers are read from a tensor of {2}", values, 2);
    INLAY_TRY(need_host(m, view));
    INLAY_TRY(inlay_task_wait(m, view->storage, view->data, view->bytes, 0));
    inlay_race_direct(m, view->storage, view->data, view->bytes, 0);
    INLAY_TRY(inlay_race_tensor(m, view, view->data, view->bytes, NULL, 0));
    for (i = 0; i < n; i++) {
        if (!load(view, i, &values[0]))
            return inlay_fail(m->error, INLAY_INT_OVERFLOW, "integer arithmetic leaves 64 bits",
                              NULL, 0);
        at[i].tag = KIND_INT;
        at[i].as.integer = values[0];
    }
    inlay_release(&m->heap, &view->header);
    m->sp = at + n;
    return INLAY_OK;
}

/* The integers of this magnitude that the type holds are held exactly. */
static int holds(uint32_t dtype, int64_t value)
{
    switch (dtype) {
    case INLAY_BOOL: return value == 0 || value == 1;
    case INLAY_I8: return value == (int8_t)value;
    case INLAY_I16: return value == (int16_t)value;
    case INLAY_I32: return value == (int32_t)value;
    case INLAY_I64:
    case INLAY_STRING: return 1;
    case INLAY_U8: return value >= 0 && value <= UINT8_MAX;
    case INLAY_U16: return value >= 0 && value <= UINT16_MAX;
    case INLAY_U32: return value >= 0 && value <= (int64_t)UINT32_MAX;
    case INLAY_U64: return value >= 0;
    case INLAY_F16: return value >= -(1 << 11) && value <= 1 << 11;
    case INLAY_BF16: return value >= -(1 << 8) && value <= 1 << 8;
    case INLAY_F32: return value >= -(1 << 24) && value <= 1 << 24;
    default: return value >= -((int64_t)1 << 53) && value <= (int64_t)1 << 53;
    }
}

/* Bits of a half whose value is a small integer: rebias the single that holds it exactly. */
static uint16_t half_bits(int64_t value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    if (value == 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 0xffu) - 112u) << 10) |
                      (bits >> 13 & 0x3ffu));
}

static void store(uint32_t dtype, uint8_t *at, int64_t value)
{
    float single = (float)value;
    double twice = (double)value;
    uint16_t half;
    uint32_t bits;
    switch (dtype) {
    case INLAY_F16:
        half = half_bits(value);
        memcpy(at, &half, 2);
        return;
    case INLAY_BF16:
        memcpy(&bits, &single, 4);
        half = (uint16_t)(bits >> 16);
        memcpy(at, &half, 2);
        return;
    case INLAY_F32: memcpy(at, &single, 4); return;
    case INLAY_F64: memcpy(at, &twice, 8); return;
    default: memcpy(at, &value, inlay_dtype_bytes[dtype]); return; /* little-endian */
    }
}

inlay_status_t inlay_op_make_ints(inlay_activation_t *m, uint32_t dtype, uint32_t n, uint32_t rank)
{
    inlay_slot_t *at = m->sp - n;
    int64_t dim = n;
    inlay_view_t *made;
    size_t item = inlay_dtype_bytes[dtype];
    uint32_t i;
    INLAY_TRY(inlay_need_ints(m, at, n));
    for (i = 0; i < n; i++) {
        if (holds(dtype, at[i].as.integer)) continue;
        inlay_fail(m->error, INLAY_INT_OVERFLOW, "{1} has no exact value of type ",
                   &at[i].as.integer, 1);
        inlay_say(m->error, DTYPE_NAMES[dtype]);
        return INLAY_INT_OVERFLOW;
    }
    made = new_tensor(m, dtype, &dim, rank, n * item, 0, BLOCK_ALIGN);
    if (!made) return INLAY_OUT_OF_MEMORY;
    inlay_race_direct(m, made->storage, made->data, made->bytes, 1);
    INLAY_TRY(inlay_race_tensor(m, made, made->data, made->bytes, NULL, 1));
    for (i = 0; i < n; i++) store(dtype, made->data + i * item, at[i].as.integer);
    set(at, KIND_TENSOR, &made->header);
    m->sp = at + 1;
    return INLAY_OK;
}
