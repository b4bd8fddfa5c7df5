#include "value.h"

const uint8_t inlay_dtype_bytes[INLAY_DTYPES] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8};

const char *inlay_kind_name(uint32_t kind)
{
    static const char *const names[] = {"nothing", "int",     "tensor", "storage", "tuple",
                                        "adt",     "closure", "cell",   "future"};
    return kind <= KIND_FUTURE ? names[kind] : "any";
}

int64_t inlay_tensor_bytes(uint32_t dtype, const int64_t *dims, uint32_t rank)
{
    int64_t size = inlay_dtype_bytes[dtype];
    uint32_t i;
    for (i = 0; i < rank; i++)
        if (dims[i] < 0) return -1;
    for (i = 0; i < rank; i++) {
        /* Factors of 31 bits cannot overflow: the usual case, without a division. */
        if ((size | dims[i]) >> 31 && dims[i] && size > INLAY_MAX_STORAGE / dims[i]) return -2;
        size *= dims[i];
        if (size > INLAY_MAX_STORAGE) return -2;
    }
    return size;
}
