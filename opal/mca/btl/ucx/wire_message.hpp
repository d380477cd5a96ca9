/// \file
/// What two modules tell each other to connect an endpoint of each to the other's: PROTOCOL.md.
/// Neither Open MPI nor UCX here.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "opal/ft/base/wire.hpp"
#include "opal/mca/btl/ucx/address.hpp"

namespace ft::ucx {

struct WireMessage {
    enum class Kind : std::uint8_t {
        call = 0, ///< here is my endpoint
        leave = 1 ///< there will be none
    };

    std::uint64_t to = 0;   ///< cookie of the receiver
    std::uint64_t from = 0; ///< cookie of the sender
    Kind kind = Kind::call;
    bool open = false;       ///< the sender knows that the receiver is connected to it
    std::uint32_t mine = 0;  ///< number of the sender's endpoint
    std::uint32_t yours = 0; ///< number of the receiver's that it is connected to; 0 none
    Address line;            ///< of the sender's, to answer there
    Bytes device;            ///< of the sender's endpoint
    Bytes endpoint;          ///< its address

    [[nodiscard]] Bytes packed() const;
    /// \return nothing when it makes no sense
    [[nodiscard]] static std::optional<WireMessage> of(std::span<const std::byte> bytes);
};

inline constexpr std::uint32_t wire_magic = 0x31525755; // "UWR1"

inline Bytes WireMessage::packed() const
{
    Bytes bytes(34 + line.device.size() + line.interface.size() + device.size() + endpoint.size());
    base::WireWriter writer(bytes);
    writer.u32(wire_magic);
    writer.u64(to);
    writer.u64(from);
    writer.u8(static_cast<std::uint8_t>(kind));
    writer.u8(open ? 1 : 0);
    writer.u32(mine);
    writer.u32(yours);
    for (const Bytes *address : {&line.device, &line.interface, &device, &endpoint}) {
        writer.u8(static_cast<std::uint8_t>(address->size()));
        writer.bytes(*address);
    }
    return bytes;
}

inline std::optional<WireMessage> WireMessage::of(std::span<const std::byte> bytes)
{
    base::WireReader reader(bytes);
    WireMessage message;
    const bool known = reader.u32() == wire_magic;
    message.to = reader.u64();
    message.from = reader.u64();
    const std::uint8_t kind = reader.u8();
    const std::uint8_t open = reader.u8();
    message.kind = static_cast<Kind>(kind);
    message.open = open == 1;
    message.mine = reader.u32();
    message.yours = reader.u32();
    for (Bytes *address :
         {&message.line.device, &message.line.interface, &message.device, &message.endpoint}) {
        const auto view = reader.bytes(reader.u8());
        address->assign(view.begin(), view.end());
    }
    const bool sensible = kind <= static_cast<std::uint8_t>(Kind::leave) && open <= 1 &&
                          message.mine != 0 && message.from != 0;
    return known && sensible && reader.complete() ? std::optional(std::move(message))
                                                  : std::nullopt;
}

} // namespace ft::ucx
