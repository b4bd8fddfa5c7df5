/* What remote devices and their servers say to each other.
 *
 * A message is a head and maybe a body of bulk bytes, each a frame. A head is a kind (u32) and the
 * fields of that kind; integers are little-endian, texts are a length (u32) and bytes. The first
 * message of each side begins with the magic number and the version; a peer of another version reads
 * no further. A head must end where its fields do, so whatever does not fit is refused as a whole.
 *
 * A client numbers what it asks for: calls that need an answer by `call`, requests by queue and number
 * as tickets do, so that the tickets of the device behind the server have the same numbers. Copies to
 * and from the host are at most WIRE_CHUNK bytes each; longer ones are several requests.
 *
 *   HELLO     magic u64, version u32, milliseconds of silence until the server forgets the client u32
 *   PING      (nothing; when there is nothing else to say)
 *   BYE       (nothing; the server ends what is in flight and forgets the client)
 *   ALLOCATE  call u32, unit u32, bytes u64                    -> ANSWER, value: memory
 *   RELEASE   memory u32
 *   LOAD      call u32, digest of the image 32 bytes; body: it -> ANSWER, value: program
 *   UNLOAD    program u32
 *   FIND      call u32, program u32, n_phases u32, name text   -> ANSWER, value: kernel or -1
 *   WRITE     request, memory u32, offset u64; body: the bytes -> DONE
 *   READ      request, memory u32, offset u64, bytes u64       -> DONE; body: the bytes, if status 0
 *   COPY      request, memory u32, offset u64, memory u32, offset u64 (to, from), bytes u64  -> DONE
 *   LAUNCH    request, program u32, kernel u32, buffers u32 (each: memory u32, offset u64),
 *             ints u32 (each i64), phases u32 (each: items i64)                              -> DONE
 *   where request is queue u32, number u64, tickets u32 (each: queue u32, number u64)
 *
 *   WELCOME   magic u64, version u32, name text, units u32, queues of a unit u32, memory u64,
 *             largest u64, has f64 u32, compute units u32, what it offers to native code text,
 *             window u64 (bytes of copies that a client may have on their way)
 *   REFUSED   magic u64, version u32, status u32, text
 *   PONG      time i64 of the server's clock, in ns; 0 where it has none
 *   ANSWER    call u32, status u32, value i64, text
 *   DONE      queue u32, number u64, status u32, answer i64, begin i64, end i64 (times of that clock; 0
 *             where the device does not say), text
 *   FAILED    status u32, text (the server forgets the client)
 */
#ifndef INLAY_WIRE_H
#define INLAY_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "inlay_driver.h"

#define WIRE_MAGIC UINT64_C(0x31454D5259414C4E) /* "NLAYRME1" */
enum { WIRE_VERSION = 3 };
enum {
    WIRE_CHUNK = 1 << 21,        /* bytes of a WRITE or READ */
    WIRE_MOST_BODY = 1 << 28,    /* bytes of an image */
    WIRE_MOST_HEAD = 1 << 16,
    WIRE_LEAST_WINDOW = 1 << 22, /* bytes of copies that a client may have in flight */
    WIRE_MOST_WINDOW = 1 << 28,
    WIRE_MOST_REQUESTS = 1024,   /* requests that a client may have in flight */
    WIRE_MOST_TICKETS = 64,
    WIRE_MOST_BUFFERS = 64,
    WIRE_MOST_INTS = 1024,
    WIRE_MOST_PHASES = 16,
    WIRE_MOST_NAME = 127,
    WIRE_MOST_TEXT = 4000,
    WIRE_MOST_QUEUES = 64,
    WIRE_DIGEST = 32             /* bytes: SHA-256 */
};

enum {
    WIRE_HELLO = 1, WIRE_PING, WIRE_BYE, WIRE_ALLOCATE, WIRE_RELEASE, WIRE_LOAD, WIRE_UNLOAD,
    WIRE_FIND, WIRE_WRITE, WIRE_READ, WIRE_COPY, WIRE_LAUNCH,
    WIRE_WELCOME = 64, WIRE_REFUSED, WIRE_PONG, WIRE_ANSWER, WIRE_DONE, WIRE_FAILED
};

/* A head that is being written. Writers know that it fits: the limits above are below its size. */
typedef struct wire_writer {
    uint8_t bytes[WIRE_MOST_HEAD];
    size_t used;
} wire_writer_t;

/* A head that is being read; `is_bad` once something does not fit, and zeros from then on. */
typedef struct wire_reader {
    const uint8_t *at, *end;
    int is_bad;
} wire_reader_t;

void inlay_wire_begin(wire_writer_t *w, uint32_t kind);
void inlay_wire_u32(wire_writer_t *w, uint32_t value);
void inlay_wire_u64(wire_writer_t *w, uint64_t value);
void inlay_wire_i64(wire_writer_t *w, int64_t value);
void inlay_wire_digest(wire_writer_t *w, const uint8_t *digest);
/* Write at most WIRE_MOST_TEXT bytes of a text. */
void inlay_wire_text(wire_writer_t *w, const char *text);

uint32_t inlay_wire_read_u32(wire_reader_t *r);
uint64_t inlay_wire_read_u64(wire_reader_t *r);
int64_t inlay_wire_read_i64(wire_reader_t *r);
void inlay_wire_read_digest(wire_reader_t *r, uint8_t *digest);
/* Read a count, which is bad beyond `most`. */
uint32_t inlay_wire_read_count(wire_reader_t *r, uint32_t most);
/* Read a text into `room` bytes, its end cut off where it does not fit, without control characters. */
void inlay_wire_read_text(wire_reader_t *r, char *text, size_t room);
/* Return whether all was read and nothing was bad. */
int inlay_wire_is_whole(const wire_reader_t *r);

#endif
