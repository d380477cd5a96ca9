/// WireReader and WireWriter under random sequences of calls on random bytes.
///
/// The first byte says how many of the following ones are operations; the rest is the message.
/// Every read is compared with the bytes it should have come from, and what was read is written
/// again.
#include "opal/ft/base/wire.hpp"
#include "test/fuzz/fuzz_require.hpp"

#include <algorithm>
#include <vector>

using ft::base::WireReader;
using ft::base::WireWriter;

namespace {

/// The integer that `count` bytes of `message` at `at` stand for; 0 when they are not all there.
std::uint64_t expected(std::span<const std::byte> message, std::size_t at, std::size_t count)
{
    std::uint64_t v = 0;
    if (count > message.size() - at) {
        return 0;
    }
    for (std::size_t i = count; i > 0; --i) {
        v = v << 8 | std::to_integer<std::uint64_t>(message[at + i - 1]);
    }
    return v;
}

/// One read, and the same thing written. Returns false when the reader must have failed.
void one_step(unsigned operation, std::span<const std::byte> message, WireReader &r, WireWriter &w)
{
    const bool was_ok = r.ok();
    const std::size_t at = r.position();
    const std::size_t left = r.remaining();
    const std::size_t count = operation >> 3; // for runs of bytes: 0 to 31
    const auto integer = [&](std::uint64_t v, std::size_t width) {
        FUZZ_REQUIRE(v == (was_ok ? expected(message, at, width) : 0));
        FUZZ_REQUIRE(r.ok() == (was_ok && width <= left));
    };
    switch (operation & 7) {
    case 0: {
        const auto v = r.u8();
        integer(v, 1);
        w.u8(v);
        break;
    }
    case 1: {
        const auto v = r.u16();
        integer(v, 2);
        w.u16(v);
        break;
    }
    case 2: {
        const auto v = r.u32();
        integer(v, 4);
        w.u32(v);
        break;
    }
    case 3: {
        const auto v = r.u64();
        integer(v, 8);
        w.u64(v);
        break;
    }
    case 4: {
        const auto piece = r.bytes(count);
        FUZZ_REQUIRE(piece.size() == (was_ok && count <= left ? count : 0));
        w.bytes(piece);
        break;
    }
    case 5:
        r.skip(count);
        FUZZ_REQUIRE(r.ok() == (was_ok && count <= left));
        if (r.ok()) {
            w.bytes(message.subspan(at, count));
        }
        break;
    case 6:
        if (count == 31) {
            r.fail();
        } else if (count == 30) {
            // A count from the wire may be anything, so also one whose sum with the position wraps.
            r.skip(at == 0 ? ~std::size_t{0} : 0 - at);
            FUZZ_REQUIRE(!r.ok());
        } else if (count == 29) {
            const auto piece = r.rest();
            FUZZ_REQUIRE(piece.size() == left);
            w.bytes(piece);
        }
        break;
    default: {
        // Patching with what is there changes nothing; beyond the end it is an error.
        const std::size_t written = w.position();
        const bool fits = w.ok() && count + 4 <= written;
        if (w.ok() && (fits || count == 31)) {
            const auto old = static_cast<std::uint32_t>(fits ? expected(w.written(), count, 4) : 0);
            w.patch_u32(count, old);
            w.patch_u16(count, static_cast<std::uint16_t>(old));
            FUZZ_REQUIRE(w.ok() == fits);
        }
        break;
    }
    }
    FUZZ_REQUIRE(r.position() <= message.size());
    FUZZ_REQUIRE(r.remaining() == (r.ok() ? message.size() - r.position() : 0));
    FUZZ_REQUIRE(!r.ok() || r.complete() == (r.position() == message.size()));
    FUZZ_REQUIRE(was_ok || !r.ok());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    if (size == 0) {
        return 0;
    }
    const std::span<const std::uint8_t> input(data + 1, size - 1);
    const std::size_t steps = std::min<std::size_t>(data[0], input.size());
    const auto message = std::as_bytes(input.subspan(steps));
    std::vector<std::byte> copy(message.size());
    WireReader r(message);
    WireWriter w(copy);
    for (const std::uint8_t operation : input.first(steps)) {
        if (!r.ok()) {
            break;
        }
        one_step(operation, message, r, w);
    }
    // Everything that was read was written once more, in the same order.
    FUZZ_REQUIRE(!r.ok() || !w.ok() || w.position() == r.position());
    FUZZ_REQUIRE(!w.ok() || std::equal(w.written().begin(), w.written().end(), message.begin()) ||
                 !r.ok());
    // A writer never goes beyond its buffer, whatever is asked.
    w.zeros(static_cast<std::size_t>(data[0]));
    w.u64(1);
    FUZZ_REQUIRE(w.position() <= copy.size());
    FUZZ_REQUIRE(w.remaining() == (w.ok() ? copy.size() - w.position() : 0));
    if (!r.ok()) {
        FUZZ_REQUIRE(r.u64() == 0 && r.bytes(1).empty() && r.rest().empty() && !r.complete());
    }
    return 0;
}
