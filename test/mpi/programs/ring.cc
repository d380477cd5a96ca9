#include "test/mpi/programs/ring.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace ring {

namespace {

constexpr std::byte guard_byte{0x5a};
constexpr std::uint64_t complaints_shown = 5;

} // namespace

Buffer::Buffer(std::size_t size) : size_(size), memory_(size + 2 * guard, guard_byte) {}

bool Buffer::guards_intact() const
{
    const auto is_guard = [](std::byte b) { return b == guard_byte; };
    const auto begin = memory_.begin();
    const auto length = static_cast<std::ptrdiff_t>(guard);
    return std::all_of(begin, begin + length, is_guard) &&
           std::all_of(memory_.end() - length, memory_.end(), is_guard);
}

std::uint64_t Ring::draw(std::uint64_t purpose, std::uint64_t limit) const
{
    return mix(mix(seed ^ purpose) + static_cast<std::uint64_t>(round)) % limit;
}

void Ring::complain(const std::string &text)
{
    if (wrong++ < complaints_shown) {
        std::fprintf(stderr, "hashring: rank %d, round %ld: %s\n", rank, round, text.c_str());
    }
}

void Ring::verify_bytes(std::span<const std::byte> received, const MessageName &name)
{
    ++messages;
    bytes += received.size();
    const Difference difference = check(received, name);
    if (difference.wrong_bytes != 0) {
        std::array<char, 200> text{};
        std::snprintf(text.data(), text.size(),
                      "message %d from %d of %zu bytes: %zu wrong, first at %zu is %02x, not %02x",
                      name.index, name.source, received.size(), difference.wrong_bytes,
                      difference.first, std::to_integer<unsigned>(difference.found),
                      std::to_integer<unsigned>(difference.expected));
        complain(text.data());
    }
}

void Ring::verify(Buffer &buffer, const MessageName &name)
{
    verify_bytes(buffer.bytes(), name);
    if (!buffer.guards_intact()) {
        complain("bytes beside the receive buffer were overwritten");
    }
}

std::span<const Kind> all_kinds()
{
    static constexpr std::array kinds{
        Kind{"storm", storm},     Kind{"bulk", bulk},         Kind{"edges", edges},
        Kind{"order", order},     Kind{"late", late},         Kind{"modes", modes},
        Kind{"shapes", shapes},   Kind{"wildcard", wildcard}, Kind{"probe", probe},
        Kind{"collect", collect},
    };
    return kinds;
}

} // namespace ring
