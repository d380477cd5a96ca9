/// \file
/// What libfabric gave and wants back.
#pragma once
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace ft::dgram {

struct FreeInfo {
    void operator()(fi_info *info) const noexcept { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// Anything of libfabric that fi_close takes.
struct CloseFid {
    template <typename T>
    void operator()(T *object) const noexcept
    {
        fi_close(&object->fid);
    }
};
template <typename T>
using Handle = std::unique_ptr<T, CloseFid>;

/// Memory that the provider may read and write.
struct Memory {
    std::vector<std::byte> bytes;
    Handle<fid_mr> registration;
    [[nodiscard]] void *descriptor() const noexcept
    {
        return registration == nullptr ? nullptr : fi_mr_desc(registration.get());
    }
    int get(fid_domain *domain, std::size_t size, std::uint64_t access, bool registered)
    {
        bytes.resize(size);
        if (!registered) {
            return 0;
        }
        fid_mr *mr = nullptr;
        const int rc = fi_mr_reg(domain, bytes.data(), size, access, 0, 0, 0, &mr, nullptr);
        registration.reset(mr);
        return rc;
    }
};

} // namespace ft::dgram
