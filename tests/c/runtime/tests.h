/* Tests of what a library with the feature `cuda` has beside: without a GPU on the host, with one or a driver for tests on
 * that. */
#ifndef TESTS_H
#define TESTS_H

#include <stdint.h>

#include "../check.h"

#include <sublet_relu.h>
#include <sublet_runtime.h>
#include <sublet_torch.h>

/* Fields that no call has written are seen. */
#define NOTHING 0xeeeeeeeeeeeeeeeeull

void test_runtime(void);
void test_wrong_runtime(void);
void test_sizes_of_results(void);
void test_network_on(uint32_t on_host);
void test_gpu_runtime(void);
void test_arena(uint32_t on_host);
void test_relu(void);
void test_gpu_relu(void);
void test_torch(void);
void test_without_gpu(void);

#endif
