#include "ompi/mca/pml/dr/resting.hpp"

#include "opal/mca/hand_over.hpp"

namespace ft::dr {

Resting resting;

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

// What is given back to the BTL is what it gives out next, for whatever endpoint.

mca_btl_base_descriptor_t *Resting::get(mca_btl_base_module_t *btl,
                                        mca_btl_base_endpoint_t *endpoint, std::size_t bytes,
                                        std::uint32_t flags) noexcept
{
    const auto wake_oldest = [&] {
        mca_btl_base_descriptor_t *const des = oldest();
        if (des != nullptr) {
            btl->btl_free(btl, des);
        }
        return des != nullptr;
    };
    flags &= ~std::uint32_t{MCA_BTL_DES_FLAGS_BTL_OWNERSHIP};
    Guard guard(lock_);
    // What it was given back rested longer than all that rest now. Asking a BTL that has none costs
    // it a search.
    if (spare_ != 0) {
        --spare_;
    } else if (all_out_) {
        wake_oldest();
    }
    mca_btl_base_descriptor_t *des = btl->btl_alloc(btl, endpoint, MCA_BTL_NO_ORDER, bytes, flags);
    if (OPAL_UNLIKELY(des == nullptr)) {
        all_out_ = true;
        spare_ = 0; // others have taken them
        if (wake_oldest()) {
            des = btl->btl_alloc(btl, endpoint, MCA_BTL_NO_ORDER, bytes, flags);
        }
    }
    return des;
}

void Resting::put(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *des) noexcept
{
    mca::hand_over(des);
    Guard guard(lock_);
    btl_ = btl;
    if (full(*btl)) {
        btl->btl_free(btl, oldest());
        all_out_ = true;
        ++spare_;
    }
    ring_[(first_ + count_) % most] = des;
    ++count_;
}

void Resting::wake_all() noexcept
{
    Guard guard(lock_);
    while (mca_btl_base_descriptor_t *const des = oldest()) {
        btl_->btl_free(btl_, des);
    }
    all_out_ = false;
    spare_ = 0;
}

} // namespace ft::dr
