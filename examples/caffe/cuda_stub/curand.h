#pragma once
typedef int curandStatus_t;
typedef struct curandGenerator_st* curandGenerator_t;
enum { CURAND_STATUS_SUCCESS = 0 };
