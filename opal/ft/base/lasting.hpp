/// \file
/// Static objects that exit() leaves alone: who calls it may have threads that are still at work
/// with them.
#pragma once
#include <memory>

namespace ft::base {

/// Never destroyed, whatever its storage. What it owns at the end stays reachable through it; but a
/// shared object that may be unloaded before the process ends has to `renew` it, or that is lost.
template <class T>
union Lasting {
    constexpr Lasting() : object() {}
    Lasting(const Lasting &) = delete;
    Lasting &operator=(const Lasting &) = delete;
    ~Lasting() {} // NOLINT(modernize-use-equals-default): that would be deleted

    /// Gives back what it owns: it is as at the start. Nobody uses it meanwhile.
    void renew()
    {
        std::destroy_at(&object);
        std::construct_at(&object);
    }

    T object;
};

} // namespace ft::base
