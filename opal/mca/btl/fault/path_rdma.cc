// Put and get. A put counts as one fragment that is sent, a get as one that is received; neither
// has a header, so all of them are data.
//
// What a lost put looks like depends on the network. Here it completes with success, as over
// btl/tcp, the only stock BTL with put that Debian's Open MPI gives two processes: its put
// completes when the bytes have left. A lost get never completes: the data did not come.

#include "opal/mca/btl/fault/injector.hpp"

#include <utility>

namespace ft::fault {

namespace {

/// A put from a copy of ours.
struct PutCopy {
    RdmaCall call;
    std::vector<std::byte> bytes;
    bool tell; ///< the PML waits for this one's completion
};

void put_copy_is_done(Btl *btl, Endpoint *endpoint, void *, Registration *, void *context, void *,
                      int status) noexcept
{
    const std::unique_ptr<PutCopy> copy(static_cast<PutCopy *>(context));
    if (copy->tell) {
        const RdmaCall &call = copy->call;
        call.done(btl, endpoint, call.local_address, call.local_handle, call.context, call.data,
                  status);
    }
}

/// A get whose result is to be corrupted.
struct BadGet {
    RdmaCall call;
    std::uint64_t damage;
};

void bad_get_is_done(Btl *btl, Endpoint *endpoint, void *, Registration *, void *context, void *,
                     int status) noexcept
{
    const std::unique_ptr<BadGet> bad(static_cast<BadGet *>(context));
    const RdmaCall &call = bad->call;
    if (status == OPAL_SUCCESS) {
        corrupt_bits(bad->damage, {static_cast<std::byte *>(call.local_address), call.size});
    }
    call.done(btl, endpoint, call.local_address, call.local_handle, call.context, call.data,
              status);
}

template <typename Function>
int call_original(Function function, Btl *btl, const RdmaCall &c)
{
    return function(btl, c.endpoint, c.local_address, c.remote_address, c.local_handle,
                    c.remote_handle, c.size, c.flags, c.order, c.done, c.context, c.data);
}

bool try_again(int result)
{
    return result == OPAL_ERR_OUT_OF_RESOURCE || result == OPAL_ERR_TEMP_OUT_OF_RESOURCE;
}

} // namespace

void Path::complete_rdma_later(const RdmaCall &call, int status)
{
    Later later;
    later.endpoint = call.endpoint;
    later.act = [this, call, status] {
        call.done(btl_, call.endpoint, call.local_address, call.local_handle, call.context,
                  call.data, status);
        return true;
    };
    const std::scoped_lock lock(injector_.mutex());
    later_.at(base::Time::zero(), std::move(later));
    waiting_ = later_.size();
}

/// Puts from a copy, corrupted or as an additional one. A copy of ours is not registered with the
/// network, so a BTL that needs registration cannot do it.
int Path::put_copy(const RdmaCall &call, const Decision &decision)
{
    auto copy = std::make_unique<PutCopy>();
    copy->call = call;
    const auto *from = static_cast<const std::byte *>(call.local_address);
    copy->bytes.assign(from, from + call.size);
    copy->tell = decision.corrupt;
    if (decision.corrupt && !corrupt_bits(decision.damage, copy->bytes)) {
        return call_original(originals_.put, btl_, call);
    }
    RdmaCall own = call;
    own.local_address = copy->bytes.data();
    own.local_handle = nullptr;
    own.done = put_copy_is_done;
    own.context = copy.get();
    own.data = nullptr;
    const int result = call_original(originals_.put, btl_, own);
    if (result >= 0) {
        static_cast<void>(copy.release()); // put_copy_is_done has it
        count(decision.corrupt ? &Counters::corrupted : &Counters::duplicated);
    }
    return result;
}

int Path::put(const RdmaCall &call)
{
    const Verdict verdict =
        judge(Direction::send, injector_.is_subject(MCA_BTL_TAG_PML, nullptr), call.endpoint);
    Decision decision = verdict.decision;
    if (verdict.refused) {
        return OPAL_ERR_UNREACH;
    }
    if (verdict.lost || decision.drop) {
        if (decision.drop) {
            count(&Counters::dropped);
        }
        complete_rdma_later(call, verdict.status);
        return OPAL_SUCCESS;
    }
    if (btl_->btl_register_mem != nullptr) {
        decision.corrupt = decision.duplicate = false;
    }
    Decision twin; // what a second put of the same is
    if (decision.duplicate) {
        put_copy(call, twin);
    }
    const auto start = [this, call, decision] {
        return decision.corrupt ? put_copy(call, decision)
                                : call_original(originals_.put, btl_, call);
    };
    Later later;
    later.endpoint = call.endpoint;
    later.act = [this, call, start] {
        if (dead_now()) {
            complete_rdma_later(call, OPAL_SUCCESS);
            return true;
        }
        const int result = start();
        if (result < 0 && !try_again(result)) {
            complete_rdma_later(call, result);
        }
        return !try_again(result);
    };
    return put_off(decision, std::move(later)) ? OPAL_SUCCESS : start();
}

int Path::get(const RdmaCall &call)
{
    const Verdict verdict =
        judge(Direction::receive, injector_.is_subject(MCA_BTL_TAG_PML, nullptr), call.endpoint);
    const Decision &decision = verdict.decision;
    if (verdict.refused) {
        return OPAL_ERR_UNREACH;
    }
    if (verdict.lost) {
        if (verdict.status != OPAL_SUCCESS) {
            complete_rdma_later(call, verdict.status);
        }
        return OPAL_SUCCESS;
    }
    if (decision.drop) {
        count(&Counters::dropped);
        return OPAL_SUCCESS;
    }
    const auto start = [this, call, decision] {
        if (!decision.corrupt) {
            return call_original(originals_.get, btl_, call);
        }
        auto bad = std::make_unique<BadGet>(BadGet{call, decision.damage});
        RdmaCall own = call;
        own.done = bad_get_is_done;
        own.context = bad.get();
        own.data = nullptr;
        const int result = call_original(originals_.get, btl_, own);
        if (result >= 0) {
            static_cast<void>(bad.release());
            count(&Counters::corrupted);
        }
        return result;
    };
    Later later;
    later.endpoint = call.endpoint;
    later.act = [this, call, start] {
        if (dead_now()) {
            return true;
        }
        const int result = start();
        if (result < 0 && !try_again(result)) {
            complete_rdma_later(call, result);
        }
        return !try_again(result);
    };
    return put_off(decision, std::move(later)) ? OPAL_SUCCESS : start();
}

} // namespace ft::fault
