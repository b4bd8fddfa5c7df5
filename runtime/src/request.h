/* Requests that drivers keep beyond `start`. */
#ifndef INLAY_REQUEST_H
#define INLAY_REQUEST_H

#include "inlay_driver.h"

/* Bytes that copies of the arrays of a request take. */
size_t inlay_request_bytes(const inlay_request_t *request);
/* Copy a request, without what its action does not use, and its arrays to `at`, which is aligned to 8;
 * returns their end. */
uint8_t *inlay_request_keep(const inlay_request_t *request, inlay_request_t *kept, uint8_t *at);

#endif
