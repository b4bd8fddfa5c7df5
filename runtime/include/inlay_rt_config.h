/* Every knob of the runtime, with its default and what it costs. Define before including. */
#ifndef INLAY_RT_CONFIG_H
#define INLAY_RT_CONFIG_H

/* Bytes of an error message. Part of each inlay_error_t, which callers keep on their stack. */
#ifndef INLAY_MESSAGE_BYTES
#define INLAY_MESSAGE_BYTES 512
#endif

/* Frames named in an error; 24 bytes each in inlay_error_t. */
#ifndef INLAY_TRACE_DEPTH
#define INLAY_TRACE_DEPTH 8
#endif

/* Limit of the machine's stack where the configuration gives none; taken in segments as needed. */
#ifndef INLAY_STACK_BYTES
#define INLAY_STACK_BYTES ((size_t)256 << 20)
#endif

/* First segment of the stack; an activation holds at least this. Later ones double. */
#ifndef INLAY_SEGMENT_BYTES
#define INLAY_SEGMENT_BYTES ((size_t)32 << 10)
#endif

/* Largest regular segment. A larger frame still gets a segment of its own. */
#ifndef INLAY_SEGMENT_MAX_BYTES
#define INLAY_SEGMENT_MAX_BYTES ((size_t)1 << 20)
#endif

/* Objects are cut from chunks of this size, one list of chunks for each size class. */
#ifndef INLAY_CHUNK_BYTES
#define INLAY_CHUNK_BYTES ((size_t)16 << 10)
#endif

/* Freed tensor memory that an activation keeps, where the configuration says nothing. */
#ifndef INLAY_CACHE_BYTES
#define INLAY_CACHE_BYTES ((size_t)256 << 20)
#endif

/* Calls and backward jumps between two questions to host.poll, and the predicted time of short kernels that
 * run meanwhile: a deadline is seen not much later than that. */
#ifndef INLAY_POLL_INTERVAL
#define INLAY_POLL_INTERVAL 65536
#endif
#ifndef INLAY_POLL_NS
#define INLAY_POLL_NS 500000
#endif

/* Bytes that a batch copies from calls, or back, from which on the threads of the host share that: about what
 * one of them copies while another one is told. */
#ifndef INLAY_SHARED_COPY
#define INLAY_SHARED_COPY ((size_t)100 << 10)
#endif

/* Commands in flight of one call, and dead memory that they may still use: beyond, issuing waits. */
#ifndef INLAY_MOST_COMMANDS
#define INLAY_MOST_COMMANDS 256
#endif
#ifndef INLAY_HELD_BYTES
#define INLAY_HELD_BYTES ((size_t)256 << 20)
#endif

/* Commands of one call that devices have, beyond which none is started behind another one: what is
 * started cannot be dropped. And queues that a command is started behind. */
#ifndef INLAY_MOST_STARTED
#define INLAY_MOST_STARTED 64
#endif
#ifndef INLAY_MOST_AFTER
#define INLAY_MOST_AFTER 4
#endif

/* Calls of a kernel that run as one at most; and commands in flight where any do. */
#ifndef INLAY_MOST_BATCHED
#define INLAY_MOST_BATCHED 64
#endif
/* More calls of a kernel than this run in multiples of it, within one call of an entry: bodies of batches work
 * on so many rows at a time, and what is left meets calls that become ready next. Of several calls of an entry
 * those that are left would read all weights by themselves from there on. */
#ifndef INLAY_BATCH_STEP
#define INLAY_BATCH_STEP 8
#endif
/* Batches whose memory is kept for later ones. */
#ifndef INLAY_STAGINGS
#define INLAY_STAGINGS 8
#endif
#ifndef INLAY_MOST_GATHERED
#define INLAY_MOST_GATHERED 4096
#endif

/* How long calls wait at most for others under way, to run kernels together. */
#ifndef INLAY_BATCH_WAIT_NS
#define INLAY_BATCH_WAIT_NS 5000000
#endif

/* How long calls that are all ready wait at most for one that has ended to be followed by another. */
#ifndef INLAY_BATCH_GAP_NS
#define INLAY_BATCH_GAP_NS 500000
#endif

/* Copies of at most so many bytes are made by the issuing thread where nothing is pending. */
#ifndef INLAY_COPY_BYTES
#define INLAY_COPY_BYTES ((size_t)64 << 10)
#endif

/* What a command takes at least, beside what is predicted of its kernel. */
#ifndef INLAY_COMMAND_NS
#define INLAY_COMMAND_NS 100
#endif

/* What issuing a command is taken to cost; and how far calls of an activation look ahead for independent
 * work at first, and at most. See lookahead.c. */
#ifndef INLAY_ISSUE_NS
#define INLAY_ISSUE_NS 500
#endif
#ifndef INLAY_LOOKAHEAD_NS
#define INLAY_LOOKAHEAD_NS 20000
#endif
#ifndef INLAY_MOST_LOOKAHEAD_NS
#define INLAY_MOST_LOOKAHEAD_NS 100000
#endif

/* Calls of functions that took less are not delegated to other threads. See delegate.c. */
#ifndef INLAY_DELEGATE_NS
#define INLAY_DELEGATE_NS 4000
#endif

/* Calls that are tasks at a time; each holds a segment of the stack. Beyond, SPAWN is CALL. */
#ifndef INLAY_MOST_TASKS
#define INLAY_MOST_TASKS 64
#endif

/* How long a wait lasts at most before host.poll is asked again. */
#ifndef INLAY_WAIT_NS
#define INLAY_WAIT_NS 2000000
#endif

/* 1 has the race detector, which a configuration turns on (`races`); off it costs a test for each
 * command. 0 leaves it out. */
#ifndef INLAY_RACES
#define INLAY_RACES 1
#endif

/* 1 counts executed instructions (one addition each). */
#ifndef INLAY_COUNT_INSTRUCTIONS
#define INLAY_COUNT_INSTRUCTIONS 0
#endif

#endif
