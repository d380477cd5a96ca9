/// \file
/// Free lists of objects of one size, so that no message costs an allocation once the process has
/// warmed up.
#pragma once
#include <cstddef>
#include <new>
#include <vector>

#include "opal/mca/lock.hpp"

namespace ft::mca {

/// Memory in blocks of one size, taken from the system in slabs and given back only at the end. Any
/// thread.
template <class Lock>
class BasicBlockPool {
  public:
    BasicBlockPool() = default;
    BasicBlockPool(const BasicBlockPool &) = delete;
    BasicBlockPool &operator=(const BasicBlockPool &) = delete;
    ~BasicBlockPool() { release(); }

    /// \param block_bytes size of a block, at least a pointer; \param per_slab blocks taken at a
    /// time
    void set_up(std::size_t block_bytes, std::size_t per_slab) noexcept
    {
        block_bytes_ = (block_bytes + 63) & ~std::size_t{63};
        per_slab_ = per_slab;
    }
    std::size_t block_bytes() const noexcept { return block_bytes_; }

    /// \return nullptr when the system has no memory
    void *get() noexcept
    {
        std::lock_guard guard(mutex_);
        if (free_ == nullptr && !grow()) {
            return nullptr;
        }
        Free *block = free_;
        free_ = block->next;
        return block;
    }
    void put(void *memory) noexcept
    {
        std::lock_guard guard(mutex_);
        free_ = new (memory) Free{free_};
    }
    /// Gives everything back to the system, blocks in use included.
    void release() noexcept
    {
        for (void *slab : slabs_) {
            ::operator delete (slab, std::align_val_t{64});
        }
        slabs_.clear();
        free_ = nullptr;
    }

  private:
    struct Free {
        Free *next;
    };
    bool grow() noexcept
    {
        void *slab = ::operator new (block_bytes_ *per_slab_, std::align_val_t{64}, std::nothrow);
        if (slab == nullptr) {
            return false;
        }
        try {
            slabs_.push_back(slab);
        } catch (...) {
            ::operator delete (slab, std::align_val_t{64});
            return false;
        }
        for (std::size_t i = per_slab_; i-- > 0;) {
            free_ = new (static_cast<std::byte *>(slab) + i * block_bytes_) Free{free_};
        }
        return true;
    }

    Lock mutex_;
    Free *free_ = nullptr;
    std::size_t block_bytes_ = 64;
    std::size_t per_slab_ = 64;
    std::vector<void *> slabs_;
};

using BlockPool = BasicBlockPool<Mutex>;

} // namespace ft::mca
