/* Status and error text. */
#ifndef INLAY_STATUS_H
#define INLAY_STATUS_H

#include "inlay_rt.h"

/* Forward any status but success. */
#define INLAY_TRY(expression)                         \
    do {                                              \
        inlay_status_t try_status_ = (expression);    \
        if (try_status_ != INLAY_OK) return try_status_; \
    } while (0)

/* Text that need not be terminated. */
typedef struct inlay_text {
    const char *at;
    uint32_t bytes;
} inlay_text_t;

/* Set the message: `template` with `{1}` .. `{n}` replaced by the values. Returns `status`.
 * `error` may be NULL. */
inlay_status_t inlay_fail_text(inlay_error_t *error, inlay_status_t status, inlay_text_t template_,
                               const int64_t *values, size_t n);
inlay_status_t inlay_fail(inlay_error_t *error, inlay_status_t status, const char *template_,
                          const int64_t *values, size_t n);

/* Message building by pieces: append to what is there, silently cut at the end. */
void inlay_say_text(inlay_error_t *error, inlay_text_t text);
void inlay_say(inlay_error_t *error, const char *text);
void inlay_say_int(inlay_error_t *error, int64_t value);

#endif
