#pragma once
typedef int cublasStatus_t;
typedef struct cublasContext* cublasHandle_t;
enum { CUBLAS_STATUS_SUCCESS = 0 };
