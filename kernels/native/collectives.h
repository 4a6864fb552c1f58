// Collectives between processes of one machine, over memory that they share. All ranks of a group call the same
// functions in the same order. Each returns 0, or 1 once the group was aborted; then nothing of it is of use.
#pragma once

#include <cstdint>

// The dtypes of numbers that are added; 0 and 1 as `half` is elsewhere.
enum CollectiveKind { COLLECTIVE_FLOAT32 = 0, COLLECTIVE_BFLOAT16 = 1, COLLECTIVE_FLOAT16 = 2, COLLECTIVE_INT32 = 3 };

extern "C" {
// Bytes of the memory that `ranks` share, all zeros when they begin, and of what one rank has for itself.
int64_t turnout_group_memory(int64_t ranks);
int64_t turnout_group_bytes();
// Makes a rank's own part, of a group in `memory`.
void turnout_group_join(void* group, void* memory, int64_t rank, int64_t ranks);
int64_t turnout_group_ranks(const void* group);
// Ends all waits of all ranks, now and from now on. Any thread may call it.
void turnout_group_abort(void* group);

// x: the sum over ranks, or the largest, of each of its numbers. They are added in rank order, 16-bit ones in
// float32.
int turnout_group_all_reduce(void* group, void* x, int64_t count, int kind, int largest, int threads);
// x: [ranks][count]; out: [count], the sum of this rank's part.
int turnout_group_reduce_scatter(void* group, const void* x, void* out, int64_t count, int kind);
// x: [rows][widths[rank]] bytes; out: [rows][widths of all ranks, in rank order], written on rank 0, or by all.
int turnout_group_gather(void* group, const void* x, void* out, int64_t rows, const int64_t* widths, int everyone);
// Bytes to and from another rank. What is sent is kept until it is received, up to some megabytes.
int turnout_group_send(void* group, const void* x, int64_t bytes, int64_t to);
int turnout_group_receive(void* group, void* x, int64_t bytes, int64_t source);
int turnout_group_barrier(void* group);
}
