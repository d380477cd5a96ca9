#include "ompi/mca/pml/dr/resting.hpp"

#include <algorithm>

#include "opal/mca/hand_over.hpp"

namespace ft::dr {

Resting resting;

std::size_t Resting::turns(const mca_btl_base_module_t &btl) noexcept
{
    return std::clamp(turn_bytes / btl.btl_max_send_size, std::size_t{1}, most);
}

mca_btl_base_descriptor_t *Resting::oldest() noexcept
{
    if (count_ == 0) {
        return nullptr;
    }
    mca_btl_base_descriptor_t *const des = ring_[first_];
    first_ = (first_ + 1) % most;
    --count_;
    return des;
}

Resting::Buffer Resting::get(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                             std::size_t bytes, std::uint32_t flags) noexcept
{
    flags &= ~std::uint32_t{MCA_BTL_DES_FLAGS_BTL_OWNERSHIP};
    const auto allocate = [&] {
        return btl->btl_alloc(btl, endpoint, MCA_BTL_NO_ORDER, bytes, flags);
    };
    // What is given back to the BTL is what it gives out next, for whatever endpoint, unless
    // another thread that sends something else was quicker.
    const auto again = [&]() -> mca_btl_base_descriptor_t * {
        mca_btl_base_descriptor_t *const des = oldest();
        if (des == nullptr) {
            return nullptr;
        }
        btl->btl_free(btl, des);
        mca_btl_base_descriptor_t *const same = allocate();
        owned_ -= same == nullptr ? 1 : 0;
        return same;
    };
    Guard guard(lock_);
    if (owned_ >= std::min(limit_, turns(*btl))) {
        if (mca_btl_base_descriptor_t *const des = again(); OPAL_LIKELY(des != nullptr)) {
            return {des, true};
        }
    }
    if (mca_btl_base_descriptor_t *const des = allocate(); des != nullptr) {
        ++owned_;
        limit_ = std::max(limit_, owned_);
        return {des, false};
    }
    limit_ = owned_; // it is not asked for more while some rest: that costs it a search
    return {again(), true};
}

void Resting::put(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *des) noexcept
{
    mca::hand_over(des);
    Guard guard(lock_);
    btl_ = btl;
    if (owned_ > turns(*btl)) {
        --owned_;
        btl->btl_free(btl, des);
        return;
    }
    ring_[(first_ + count_) % most] = des;
    ++count_;
}

void Resting::wake_all() noexcept
{
    Guard guard(lock_);
    while (mca_btl_base_descriptor_t *const des = oldest()) {
        --owned_;
        btl_->btl_free(btl_, des);
    }
}

} // namespace ft::dr
