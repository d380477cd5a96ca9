/// Four membership engines, between whom somebody hostile sits who has the key.
///
/// The input is a list of commands: messages between the engines arrive, or not, or twice, or with
/// a field changed; messages arrive that nobody sent; time passes; nodes are suspected, proven
/// dead, asked to leave, started as joiners. Forged messages may lead to anything but a crash, a
/// message to nobody, memory or messages without bound, or a timer that does not move.
#include "opal/ft/membership/stabilizer.hpp"
#include "test/fuzz/fuzz_require.hpp"

#include "opal/ft/base/wire.hpp"

#include <deque>

using namespace ft::membership;
using ft::base::Duration;
using ft::base::Time;
using ft::base::WireReader;

namespace {

constexpr NodeId node_count = 5; // the last is a joiner

class Net {
  public:
    Net(unsigned arity, TreeMode mode)
    {
        config_.arity = arity;
        config_.mode = mode;
        config_.minority_wait = Duration::from_ms(500);
        config_.exile_hold = Duration::from_ms(600);
        initial_ = View::initial(node_count - 1, arity, mode);
        for (NodeId id = 0; id < node_count; ++id) {
            restart(id, 0);
        }
    }

    void restart(NodeId id, std::uint32_t incarnation)
    {
        if (id + 1 < node_count && incarnation == 0) {
            engines_[id] =
                std::make_unique<Stabilizer>(config_, pool_, Identity{id, 0}, initial_, now_);
        } else {
            engines_[id] = std::make_unique<Stabilizer>(config_, pool_, Identity{id, incarnation},
                                                        std::vector<NodeId>{0, 1, 2, 3, 4}, now_);
        }
    }

    void absorb()
    {
        FUZZ_REQUIRE(out_.messages.size() < 400);
        for (Message &m : out_.messages) {
            FUZZ_REQUIRE(m.to < max_nodes && m.to != m.from);
            if (m.to < node_count && mail_.size() < 500) {
                mail_.push_back(std::move(m));
            }
        }
        for (const Event &e : out_.events) {
            FUZZ_REQUIRE(e.kind != Event::Kind::installed || e.view->consistent());
        }
        out_.clear();
    }

    void take(const Message &m)
    {
        if (m.to < node_count) {
            engines_[m.to]->on_message(now_, m, out_);
            absorb();
        }
    }

    void pass(Duration by)
    {
        now_ = now_ + by;
        for (NodeId id = 0; id < node_count; ++id) {
            // One step may make the next one due at once, but that must come to an end.
            for (unsigned times = 0; engines_[id]->next_deadline() <= now_; ++times) {
                FUZZ_REQUIRE(times < 8);
                engines_[id]->on_time(now_, out_);
                absorb();
            }
        }
    }

    void deliver(WireReader &in, unsigned how)
    {
        if (mail_.empty()) {
            return;
        }
        Message m = std::move(mail_.front());
        mail_.pop_front();
        if (how == 1) { // lost
            return;
        }
        if (how == 2) { // and again later
            mail_.push_back(m);
        } else if (how == 3) {
            change(m, in);
        }
        take(m);
    }

    /// Another value in one field, as somebody with the key could put it there.
    void change(Message &m, WireReader &in)
    {
        const std::uint8_t which = in.u8();
        const std::uint8_t value = in.u8();
        switch (which % 14) {
        case 0:
            m.from = value % 8;
            break;
        case 1:
            m.to = value % node_count;
            break;
        case 2:
            m.from_incarnation = value % 4;
            break;
        case 3:
            m.to_incarnation = value % 4;
            break;
        case 4:
            m.epoch = value;
            break;
        case 5:
            m.number = value;
            break;
        case 6:
            m.coordinator = value % 8;
            break;
        case 7:
            m.hint = value % 8;
            break;
        case 8:
            m.beat = value;
            break;
        case 9:
            m.status = static_cast<Status>(value % status_count);
            break;
        case 10: {
            // A type whose parts the message has, as the parser sees to.
            const auto type = static_cast<Type>(value % (type_count - 1) + 1);
            const Type was = m.type;
            m.type = type;
            if (!decode(encode(m))) {
                m.type = was;
            }
            break;
        }
        case 11:
            if (m.proposal) {
                auto p = std::make_shared<Proposal>(*m.proposal);
                p->number = p->base + 1 + value;
                m.number = p->number;
                m.proposal = p;
            }
            break;
        case 12:
            if (m.proposal) {
                auto p = std::make_shared<Proposal>(*m.proposal);
                p->change.removed.clear();
                p->change.removed.push_back(
                    {value % NodeId{8}, 0, static_cast<Grade>(value / 8 % 3), value / 32U});
                p->coordinator = m.from;
                if (const ViewPtr made = initial_->apply(p->number, p->change)) {
                    p->base = 0;
                    p->base_digest = initial_->digest();
                    p->target_digest = made->digest();
                }
                m.proposal = p;
            }
            break;
        default:
            m.sequence = value;
            break;
        }
        FUZZ_REQUIRE(encode(m).size() < 100000);
    }

    /// A message that nobody sent, small numbers in all of its fields.
    void forge(WireReader &in)
    {
        Message m;
        m.type = static_cast<Type>(in.u8() % (type_count - 1) + 1);
        m.status = static_cast<Status>(in.u8() % status_count);
        m.from = in.u8() % 8;
        m.to = in.u8() % node_count;
        m.from_incarnation = in.u8() % 3;
        m.to_incarnation = engines_[m.to]->self().incarnation;
        m.sequence = ++forged_ + 1000;
        m.epoch = in.u8() % 8;
        m.number = in.u8() % 16;
        m.coordinator = in.u8() % 8;
        m.hint = in.u8() % 8;
        const std::uint8_t parts = in.u8();
        if ((parts & 1) != 0) {
            m.accused.push_back({in.u8() % NodeId{8}, 0, static_cast<Grade>(in.u8() % 3), m.from});
        }
        if ((parts & 2) != 0) {
            Change change;
            const NodeId gone = in.u8() % (node_count - 1);
            change.removed.push_back({gone, 0, static_cast<Grade>(parts >> 6 == 0), no_node});
            if ((parts & 16) != 0) {
                change.joined.push_back({in.u8() % NodeId{8}, 1U + in.u8() % 2U});
            }
            m.view = initial_->apply(m.number + 1, change);
            if ((parts & 4) != 0 && m.view) {
                m.ambiguous = std::make_shared<const std::vector<Ambiguous>>(
                    1, Ambiguous{m.coordinator, m.view});
            }
            const ViewPtr base = (parts & 32) != 0 ? engines_[m.to]->view() : initial_;
            if ((parts & 8) != 0 && m.view && base) {
                auto p = std::make_shared<Proposal>();
                p->number = m.number = m.number + base->epoch() + 1;
                p->coordinator = m.coordinator;
                p->base = base->epoch();
                p->base_digest = base->digest();
                p->change = change;
                const ViewPtr made = base->apply(p->number, change);
                p->target_digest = made ? made->digest() : 0;
                m.proposal = std::move(p);
            }
        }
        const auto bytes = encode(m);
        if (const auto parsed = decode(bytes)) {
            take(*parsed);
        }
    }

    void fault(unsigned what, NodeId at, NodeId about)
    {
        switch (what % 5) {
        case 0:
            engines_[at]->on_suspicion(now_, about, out_);
            break;
        case 1:
            engines_[at]->on_proof(now_, about, static_cast<ProofKind>(what / 5 % 3), out_);
            break;
        case 2:
            engines_[at]->leave(now_, out_);
            break;
        case 3:
            restart(at, engines_[at]->self().incarnation + 1);
            break;
        default:
            if (what / 5 % 2 != 0) {
                engines_[at]->turn_away(now_, {about, what / 10 % 3}, out_);
            }
            static_cast<void>(engines_[at]->admit(about, what));
            static_cast<void>(engines_[at]->acting_root());
            static_cast<void>(engines_[at]->quiet());
            break;
        }
        absorb();
    }

  private:
    Config config_;
    std::shared_ptr<ViewPool> pool_ = std::make_shared<ViewPool>();
    ViewPtr initial_;
    Time now_ = Time::from_ns(1'000'000);
    std::unique_ptr<Stabilizer> engines_[node_count];
    std::deque<Message> mail_;
    Output out_;
    std::uint64_t forged_ = 0;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size)
{
    WireReader in(std::as_bytes(std::span(data, size)));
    const std::uint8_t shape = in.u8();
    Net net((shape & 1) != 0 ? 4 : 2, (shape & 2) != 0 ? TreeMode::paper : TreeMode::rebuild);
    for (unsigned steps = 0; steps < 120 && in.remaining() > 0; ++steps) {
        const std::uint8_t command = in.u8();
        const unsigned operand = command / 8;
        switch (command % 8) {
        case 0:
        case 1:
            for (unsigned i = 0; i <= operand; ++i) {
                net.deliver(in, 0);
            }
            break;
        case 2:
            net.deliver(in, 1 + operand % 2);
            break;
        case 3:
            net.deliver(in, 3);
            break;
        case 4:
            net.pass(Duration::from_us(std::int64_t{100} << operand % 14));
            break;
        case 5: {
            const std::uint8_t who = in.u8();
            net.fault(operand, who % node_count, who / 8 % 8);
            break;
        }
        default:
            net.forge(in);
            break;
        }
    }
    return 0;
}
