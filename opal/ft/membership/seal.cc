#include "opal/ft/membership/seal.hpp"

#include "opal/ft/base/wire.hpp"

#include <bit>

namespace ft::membership {

namespace {

struct SipState {
    std::uint64_t a, b, c, d;

    void round()
    {
        a += b;
        b = std::rotl(b, 13) ^ a;
        a = std::rotl(a, 32);
        c += d;
        d = std::rotl(d, 16) ^ c;
        a += d;
        d = std::rotl(d, 21) ^ a;
        c += b;
        b = std::rotl(b, 17) ^ c;
        c = std::rotl(c, 32);
    }
};

} // namespace

std::uint64_t siphash24(const Key &key, std::span<const std::byte> data)
{
    base::WireReader k(key);
    const std::uint64_t k0 = k.u64();
    const std::uint64_t k1 = k.u64();
    SipState s{k0 ^ 0x736f6d6570736575U, k1 ^ 0x646f72616e646f6dU, k0 ^ 0x6c7967656e657261U,
               k1 ^ 0x7465646279746573U};
    const auto absorb = [&s](std::uint64_t word) {
        s.d ^= word;
        s.round();
        s.round();
        s.a ^= word;
    };
    base::WireReader r(data);
    while (r.remaining() >= 8) {
        absorb(r.u64());
    }
    std::uint64_t last = static_cast<std::uint64_t>(data.size()) << 56;
    for (unsigned shift = 0; r.remaining() != 0; shift += 8) {
        last |= static_cast<std::uint64_t>(r.u8()) << shift;
    }
    absorb(last);
    s.c ^= 0xff;
    for (int i = 0; i < 4; ++i) {
        s.round();
    }
    return s.a ^ s.b ^ s.c ^ s.d;
}

std::vector<std::byte> Sealer::seal(const Message &m) const
{
    std::vector<std::byte> out = encode(m);
    const std::uint64_t tag = siphash24(key_, out);
    const std::size_t length = out.size();
    out.resize(length + tag_size);
    base::WireWriter(std::span(out).subspan(length)).u64(tag);
    return out;
}

std::optional<Message> Sealer::open(std::span<const std::byte> sealed, Fault *fault,
                                    NodeId most_ids) const
{
    const auto fail = [fault](Fault why) -> std::optional<Message> {
        if (fault != nullptr) {
            *fault = why;
        }
        return std::nullopt;
    };
    if (sealed.size() < tag_size) {
        return fail(Fault::too_short);
    }
    const auto body = sealed.first(sealed.size() - tag_size);
    const std::uint64_t expected = siphash24(key_, body);
    const std::uint64_t got = base::WireReader(sealed.last(tag_size)).u64();
    // One word against one word: no early exit that would tell how many bytes were right.
    if ((expected ^ got) != 0) {
        return fail(Fault::bad_tag);
    }
    std::optional<Message> m = decode(body, most_ids);
    if (!m) {
        return fail(Fault::malformed);
    }
    if (fault != nullptr) {
        *fault = Fault::none;
    }
    return m;
}

} // namespace ft::membership
