#include "status.h"

#include <string.h>

const char *inlay_status_id(inlay_status_t status)
{
    switch (status) {
    case INLAY_OK: return "ok";
    case INLAY_PENDING: return "pending";
    case INLAY_BAD_ARGUMENT: return "run.bad-argument";
    case INLAY_BAD_INPUT: return "input.mismatch";
    case INLAY_OUT_OF_MEMORY: return "run.out-of-memory";
    case INLAY_STACK_LIMIT: return "run.stack-limit";
    case INLAY_CANCELLED: return "run.cancelled";
    case INLAY_DEADLINE: return "run.deadline";
    case INLAY_NOT_INLAY: return "container.not-inlay";
    case INLAY_VERSION: return "container.version";
    case INLAY_TRUNCATED: return "container.truncated";
    case INLAY_CORRUPT: return "container.corrupt";
    case INLAY_DIGEST: return "container.digest";
    case INLAY_BYTECODE: return "container.bytecode";
    case INLAY_SYMBOL: return "container.symbol";
    case INLAY_PERMISSION: return "container.permission";
    case INLAY_LIMIT: return "run.server-limit";
    case INLAY_ABSENT: return "run.device-absent";
    case INLAY_DEVICE_FAILED: return "run.device-failed";
    case INLAY_BUILD_FAILED: return "run.build-failed";
    case INLAY_LOST: return "run.device-lost";
    case INLAY_CHECK_FAILED: return "run.check-failed";
    case INLAY_INT_OVERFLOW: return "run.int-overflow";
    case INLAY_DIVIDE_BY_ZERO: return "run.divide-by-zero";
    case INLAY_BAD_DIMS: return "run.bad-dims";
    case INLAY_OUT_OF_RANGE: return "run.out-of-range";
    case INLAY_KIND_MISMATCH: return "run.kind-mismatch";
    case INLAY_READ_ONLY: return "run.read-only";
    case INLAY_KERNEL_FAILED: return "run.kernel-failed";
    case INLAY_RACE: return "run.race";
    }
    return "run.unknown";
}

void inlay_say_text(inlay_error_t *error, inlay_text_t text)
{
    size_t used, room;
    if (!error) return;
    used = strlen(error->message);
    room = sizeof error->message - 1 - used;
    if (text.bytes < room) room = text.bytes;
    if (room) memcpy(error->message + used, text.at, room);
    error->message[used + room] = '\0';
}

void inlay_say(inlay_error_t *error, const char *text)
{
    inlay_text_t piece;
    piece.at = text;
    piece.bytes = (uint32_t)strlen(text);
    inlay_say_text(error, piece);
}

void inlay_say_int(inlay_error_t *error, int64_t value)
{
    char digits[24];
    inlay_text_t piece;
    char *at = digits + sizeof digits;
    /* Negative remainders, so that the least integer needs no case of its own. */
    int64_t rest = value > 0 ? -value : value;
    do {
        *--at = (char)('0' - rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0) *--at = '-';
    piece.at = at;
    piece.bytes = (uint32_t)(digits + sizeof digits - at);
    inlay_say_text(error, piece);
}

/* Read `{k}` with 1 <= k <= n at the start of the text; return its length, or 0. */
static uint32_t placeholder(const char *at, uint32_t bytes, size_t n, size_t *index)
{
    uint32_t i = 1;
    size_t k = 0;
    while (i < bytes && i < 8 && at[i] >= '0' && at[i] <= '9') k = k * 10 + (size_t)(at[i++] - '0');
    if (i == 1 || i >= bytes || at[i] != '}' || at[1] == '0' || k < 1 || k > n) return 0;
    *index = k - 1;
    return i + 1;
}

inlay_status_t inlay_fail_text(inlay_error_t *error, inlay_status_t status, inlay_text_t template_,
                               const int64_t *values, size_t n)
{
    uint32_t start = 0, i = 0;
    if (!error) return status;
    error->status = status;
    error->message[0] = '\0';
    error->depth = 0;
    while (i < template_.bytes) {
        size_t index = 0;
        uint32_t length = 0;
        if (template_.at[i] == '{')
            length = placeholder(template_.at + i, template_.bytes - i, n, &index);
        if (!length) {
            i++;
            continue;
        }
        inlay_say_text(error, (inlay_text_t){template_.at + start, i - start});
        inlay_say_int(error, values[index]);
        i += length;
        start = i;
    }
    inlay_say_text(error, (inlay_text_t){template_.at + start, i - start});
    return status;
}

inlay_status_t inlay_fail(inlay_error_t *error, inlay_status_t status, const char *template_,
                          const int64_t *values, size_t n)
{
    inlay_text_t text;
    text.at = template_;
    text.bytes = (uint32_t)strlen(template_);
    return inlay_fail_text(error, status, text, values, n);
}
