// A call that has to throw.
#ifndef THROWS_HPP
#define THROWS_HPP

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <sublet.hpp>

#include "condition.h"

// Asserts that `body` throws an error with this status, and these words in its text.
inline void throws(sublet_status status, const char *words, const std::function<void()> &body) {
    try {
        body();
    } catch (const sublet::exception &e) {
        CHECK(e.status() == status && e.error().status == status);
        CHECK(std::strstr(e.what(), words) != nullptr);
        return;
    }
    std::fprintf(stderr, "nothing was thrown, for: %s\n", words);
    std::exit(1);
}

#endif
