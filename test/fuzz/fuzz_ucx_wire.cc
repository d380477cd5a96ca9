/// The messages by which btl/ucx connects endpoints: what is accepted is what would be sent again.
#include "opal/mca/btl/ucx/wire_message.hpp"
#include "test/fuzz/fuzz_require.hpp"

#include <algorithm>

using ft::ucx::Bytes;
using ft::ucx::WireMessage;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    const auto bytes = std::as_bytes(std::span(data, size));
    const auto message = WireMessage::of(bytes);
    if (!message) {
        return 0;
    }
    FUZZ_REQUIRE(message->mine != 0 && message->from != 0);
    FUZZ_REQUIRE(message->kind == WireMessage::Kind::call ||
                 message->kind == WireMessage::Kind::leave);
    const Bytes again = message->packed();
    FUZZ_REQUIRE(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
    return 0;
}
