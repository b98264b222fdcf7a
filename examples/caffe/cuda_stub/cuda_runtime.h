// Declares what Caffe's headers and the adapter name of CUDA's runtime, for a compiler without CUDA.
#pragma once
#include <cstddef>
typedef int cudaError_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
enum { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDefault = 4 };
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetDevice(int*);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMalloc(void**, size_t);
template <typename T> cudaError_t cudaMalloc(T**, size_t);
cudaError_t cudaMallocManaged(void**, size_t);
cudaError_t cudaMallocHost(void**, size_t);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaFree(void*);
cudaError_t cudaMemset(void*, int, size_t);
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
