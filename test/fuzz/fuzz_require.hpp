/// What a fuzz target states about its subject: unlike assert, checked in every build.
#pragma once

#include "opal/ft/base/assert.hpp"

#include <cstddef>
#include <cstdint>

/// Stops the target when `condition` does not hold; the fuzzer keeps the input.
#define FUZZ_REQUIRE(condition) FT_ASSERT(condition)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);
