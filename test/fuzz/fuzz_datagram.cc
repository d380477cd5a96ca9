/// Datagrams of btl/dgram from random bytes, and fragments put together from them.
///
/// The input is a row of datagrams, each behind its length in two bytes. The key stands in the
/// first eight bytes of the input: an input that has it in a datagram, too, gets past it.
#include "opal/ft/datagram/datagram.hpp"
#include "opal/ft/datagram/reassembly.hpp"
#include "test/fuzz/fuzz_require.hpp"

#include <algorithm>
#include <array>

#include "opal/ft/base/wire.hpp"

using namespace ft::dgram;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    ft::base::WireReader reader(std::as_bytes(std::span(data, size)));
    const std::uint64_t key = reader.u64();
    Reassembly reassembly;
    while (reader.ok() && reader.remaining() > 0) {
        const auto datagram = reader.bytes(std::min<std::size_t>(reader.u16(), reader.remaining()));
        FUZZ_REQUIRE(length_of_first(datagram) <= datagram.size());
        Header header;
        std::span<const std::byte> payload;
        const bool ok = parse_datagram(datagram, key, header, payload) == Parse::ok;
        // What is looked for first says the same.
        std::uint8_t tag = 0;
        std::span<const std::byte> fragment;
        FUZZ_REQUIRE(parse_whole(datagram, key, tag, fragment) ==
                     (ok && header.kind == Kind::whole));
        if (!ok) {
            continue;
        }
        FUZZ_REQUIRE(header.kind != Kind::whole ||
                     (tag == header.tag && fragment.data() == payload.data() &&
                      fragment.size() == payload.size()));
        FUZZ_REQUIRE(header.key == key);
        std::array<std::byte, long_bytes> again{};
        const std::size_t length = write_header(header, datagram.size(), again);
        FUZZ_REQUIRE(length + payload.size() == datagram.size());
        FUZZ_REQUIRE(std::equal(again.begin(), again.begin() + static_cast<std::ptrdiff_t>(length),
                                datagram.begin()));
        if (header.kind == Kind::part) {
            FUZZ_REQUIRE(std::uint64_t{header.offset} + payload.size() <= header.total);
            const auto whole = reassembly.take(header, payload);
            FUZZ_REQUIRE(whole.empty() || whole.size() == header.total);
        }
    }
    return 0;
}
