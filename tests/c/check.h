/* What all tests use. */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sublet.h>

#include "condition.h"

/* The error of the last call that was to fail. */
extern sublet_error error;

/* The call succeeds, and leaves an error of all zeros. */
#define WORKS(call)                                                                    \
    do {                                                                               \
        memset(&error, 0xee, sizeof error);                                            \
        sublet_status status_ = (call);                                                \
        if (status_ != SUBLET_STATUS_OK || error.status != 0 || error.index != 0 ||    \
            error.needed != 0 || error.got != 0) {                                     \
            fprintf(stderr, "%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, (int)status_); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

/* The call fails with this status, index, needed and got, and says the same in the error. */
#define FAILS(expected, at, enough, had, call)                                         \
    do {                                                                               \
        memset(&error, 0xee, sizeof error);                                            \
        sublet_status status_ = (call);                                                \
        if (status_ != (expected) || error.status != (expected) ||                     \
            error.index != (uint32_t)(at) || error.needed != (uint64_t)(enough) ||     \
            error.got != (uint64_t)(had)) {                                            \
            fprintf(stderr, "%s:%d: %s: status %d, index %u, needed %llu, got %llu\n", __FILE__, __LINE__, #call, \
                    (int)status_, (unsigned)error.index, (unsigned long long)error.needed,                       \
                    (unsigned long long)error.got);                                    \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

/* A struct of results may be that of an older caller, which ends right after `known`, and of a newer one: as much is written as
 * the caller knows. A size that is none is refused, and nothing is written. `place` is the argument's position in the call. */
#define SIZES_ARE_HEARD(type, known, place, result, call)                              \
    do {                                                                               \
        struct {                                                                       \
            type first;                                                                \
            unsigned char more[16];                                                    \
        } buffer_;                                                                     \
        type *result = &buffer_.first;                                                 \
        const size_t older_ = offsetof(type, known) + sizeof result->known;            \
        memset(&buffer_, 0xee, sizeof buffer_);                                        \
        result->struct_size = (uint32_t)older_;                                        \
        WORKS(call);                                                                   \
        for (size_t i_ = older_; i_ < sizeof buffer_; ++i_) {                          \
            CHECK(((unsigned char *)&buffer_)[i_] == 0xee);                            \
        }                                                                              \
        unsigned char unwritten_[sizeof result->known];                                \
        memset(unwritten_, 0xee, sizeof unwritten_);                                   \
        CHECK(memcmp(unwritten_, &result->known, sizeof unwritten_) != 0);             \
        memset(&buffer_, 0xee, sizeof buffer_);                                        \
        result->struct_size = sizeof buffer_;                                          \
        WORKS(call);                                                                   \
        CHECK(result->struct_size == sizeof buffer_ && buffer_.more[15] == 0);         \
        const uint32_t none_[] = {0, 3, 4097, UINT32_MAX};                             \
        for (size_t i_ = 0; i_ < COUNT(none_); ++i_) {                                 \
            memset(&buffer_, 0xee, sizeof buffer_);                                    \
            result->struct_size = none_[i_];                                           \
            FAILS(SUBLET_STATUS_STRUCT_SIZE, place, 4096, none_[i_], call);            \
            CHECK(((unsigned char *)&buffer_)[sizeof(uint32_t)] == 0xee);              \
        }                                                                              \
    } while (0)

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A pointer that is one byte off. */
#define ODD(pointer) ((void *)((char *)(pointer) + 1))

/* Memory of exactly this layout, so that a byte too many is seen, filled with what must not matter. */
void *lend(sublet_layout layout);

void test_version(void);
void test_status(void);
void test_error(void);
void test_handle(void);
void test_place(void);
void test_bound(void);
void test_banks(void);
void test_chunks(void);
void test_verify(void);
void test_trace(void);
void test_graph(void);
void test_schedule(void);
void test_operator(void);
void test_fit(void);
void test_allocator(void);
void test_framework(void);
void test_recorder(void);
void test_detector(void);
void test_replay(void);
void test_pool(void);
void test_network(void);
void test_tensors_that_stay(void);

#endif
