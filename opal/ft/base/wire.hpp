/// Reading and writing of message headers, byte by byte, little endian, without trust.
///
/// Both classes work on memory that the caller owns and keeps alive. An access beyond the end does
/// not touch memory: it sets an error that sticks (`ok()` turns false and stays so), reads give
/// zero from then on and writes do nothing. So a parser reads all fields in one go and asks once at
/// the end. Nothing here throws or allocates. One object belongs to one thread.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace ft::base {

namespace detail {

/// The value with its bytes in the order of the wire; its own inverse.
template <std::unsigned_integral T>
constexpr T little_endian(T v)
{
    if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) {
        return v;
    } else {
        T swapped = 0;
        for (std::size_t i = 0; i < sizeof(T); ++i) {
            swapped = static_cast<T>((swapped << 8) | ((v >> (8 * i)) & 0xff));
        }
        return swapped;
    }
}

} // namespace detail

/// Takes little-endian integers and runs of bytes from the front of a buffer.
class WireReader {
  public:
    explicit WireReader(std::span<const std::byte> data) : data_(data) {}

    /// False once any read has gone beyond the end.
    bool ok() const { return ok_; }
    /// Bytes not yet read; 0 after an error.
    std::size_t remaining() const { return ok_ ? data_.size() - at_ : 0; }
    /// Bytes read so far; after an error, those before the read that failed.
    std::size_t position() const { return at_; }
    /// True when everything was read and nothing beyond: what a parser of a whole message wants.
    bool complete() const { return ok_ && at_ == data_.size(); }

    std::uint8_t u8() { return integer<std::uint8_t>(); }
    std::uint16_t u16() { return integer<std::uint16_t>(); }
    std::uint32_t u32() { return integer<std::uint32_t>(); }
    std::uint64_t u64() { return integer<std::uint64_t>(); }

    /// The next `count` bytes, as a view into the buffer; empty on error.
    std::span<const std::byte> bytes(std::size_t count)
    {
        if (!take(count)) {
            return {};
        }
        return data_.subspan(at_ - count, count);
    }

    /// Everything that is left; empty after an error.
    std::span<const std::byte> rest() { return bytes(remaining()); }

    void skip(std::size_t count) { take(count); }

    /// For a parser that finds a value it cannot accept: the same sticky error as a short buffer.
    void fail() { ok_ = false; }

  private:
    bool take(std::size_t count)
    {
        // Written so that no sum can wrap: count comes from the wire.
        if (!ok_ || count > data_.size() - at_) {
            ok_ = false;
            return false;
        }
        at_ += count;
        return true;
    }

    template <std::unsigned_integral T>
    T integer()
    {
        if (!take(sizeof(T))) {
            return 0;
        }
        T v = 0;
        std::memcpy(&v, data_.data() + (at_ - sizeof(T)), sizeof(T));
        return detail::little_endian(v);
    }

    std::span<const std::byte> data_;
    std::size_t at_ = 0;
    bool ok_ = true;
};

/// Puts little-endian integers and runs of bytes at the front of a buffer.
class WireWriter {
  public:
    explicit WireWriter(std::span<std::byte> data) : data_(data) {}

    /// False once any write did not fit. What was written before is still there.
    bool ok() const { return ok_; }
    /// Bytes that still fit; 0 after an error.
    std::size_t remaining() const { return ok_ ? data_.size() - at_ : 0; }
    /// Bytes written so far.
    std::size_t position() const { return at_; }
    /// What was written so far.
    std::span<const std::byte> written() const { return data_.first(at_); }

    void u8(std::uint8_t v) { integer(v); }
    void u16(std::uint16_t v) { integer(v); }
    void u32(std::uint32_t v) { integer(v); }
    void u64(std::uint64_t v) { integer(v); }

    void bytes(std::span<const std::byte> source)
    {
        if (take(source.size()) && !source.empty()) {
            std::memcpy(data_.data() + (at_ - source.size()), source.data(), source.size());
        }
    }

    /// `count` zero bytes, for fields that are reserved.
    void zeros(std::size_t count)
    {
        if (take(count) && count != 0) {
            std::memset(data_.data() + (at_ - count), 0, count);
        }
    }

    /// Writes a value at `offset`, over bytes already written: for lengths and checksums that are
    /// known only at the end. An offset beyond what was written is an error like any other.
    void patch_u16(std::size_t offset, std::uint16_t v) { patch(offset, v); }
    void patch_u32(std::size_t offset, std::uint32_t v) { patch(offset, v); }

  private:
    bool take(std::size_t count)
    {
        if (!ok_ || count > data_.size() - at_) {
            ok_ = false;
            return false;
        }
        at_ += count;
        return true;
    }

    template <std::unsigned_integral T>
    void integer(T v)
    {
        if (take(sizeof(T))) {
            put(at_ - sizeof(T), v);
        }
    }

    template <std::unsigned_integral T>
    void patch(std::size_t offset, T v)
    {
        if (!ok_ || at_ < sizeof(T) || offset > at_ - sizeof(T)) {
            ok_ = false;
            return;
        }
        put(offset, v);
    }

    template <std::unsigned_integral T>
    void put(std::size_t offset, T v)
    {
        const T out = detail::little_endian(v);
        std::memcpy(data_.data() + offset, &out, sizeof(T));
    }

    std::span<std::byte> data_;
    std::size_t at_ = 0;
    bool ok_ = true;
};

} // namespace ft::base
