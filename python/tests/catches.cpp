// What PyTorch sees of an allocator that has no memory: 1 for c10::OutOfMemoryError, 2 for another c10::Error, 0 for none.
//     g++ -shared -fPIC -I torch/include catches.cpp -o catches.so
#include <c10/util/Exception.h>

template <typename Call> static int caught(Call call) {
    try {
        call();
    } catch (const c10::OutOfMemoryError &error) {
        return error.msg().find("Tried to allocate") != std::string::npos ? 1 : -1;
    } catch (const c10::Error &error) {
        return error.msg().find("no driver") != std::string::npos ? 2 : -2;
    }
    return 0;
}

extern "C" int by_malloc(void *(*allocate)(ptrdiff_t, int, void *), ptrdiff_t bytes) {
    return caught([&] { allocate(bytes, 0, nullptr); });
}

extern "C" int by_throw(void (*throw_it)(ptrdiff_t, int, bool), bool works) {
    return caught([&] { throw_it(512, 0, works); });
}
