/* Replays the stream that was recorded when the bundle was exported, through the C interface.

   It conditions on the first points, learns the others one by one, predicts at the recorded
   moments, and compares: errors are in scaled units, as `edgefold check` has them. Then it saves,
   loads and saves again. It prints the largest error, what each call cost and the stack of all, and
   ends with 0 where all is within the tolerance and both snapshots are the same. */
#include "golden.h"

#define REPLAY_SNAPSHOT_BYTES GOLDEN_SNAPSHOT_BYTES
#include "replay_parts.h"

/* Instructions of the calls of one kind. */
struct tally {
    const char *name;
    uint32_t n_calls;
    uint64_t total, most;
};

static struct tally conditioning = {"condition, the first points", 0, 0, 0};
static struct tally learning = {GOLDEN_LEARN, 0, 0, 0};
static struct tally refreshing = {"refresh", 0, 0, 0};
static struct tally asking_one = {"query of one target", 0, 0, 0};
static struct tally asking_many = {"query of several targets", 0, 0, 0};

static double worst;
static int is_wrong; /* a refused call, or a prediction that is not a number */

/* Print a positive number as 1.234e-5. */
static void print_number(double number)
{
    int exponent = 0;
    while (number >= 9.9995) {
        number /= 10;
        exponent++;
    }
    while (number > 0 && number < 0.99995) {
        number *= 10;
        exponent--;
    }
    const uint32_t thousandths = (uint32_t)(number * 1000 + 0.5);
    print_count(thousandths / 1000);
    machine_print(".");
    print_count(thousandths / 100 % 10);
    print_count(thousandths / 10 % 10);
    print_count(thousandths % 10);
    machine_print(exponent < 0 ? "e-" : "e+");
    print_count((uint64_t)(exponent < 0 ? -exponent : exponent));
}

/* Note what a call took since `before`, and whether it was refused. */
static void note(struct tally *tally, uint64_t before, enum edgefold_status status)
{
    const uint64_t taken = machine_instructions() - before;
    tally->n_calls++;
    tally->total += taken;
    if (taken > tally->most) {
        tally->most = taken;
    }
    if (status != EDGEFOLD_OK && !is_wrong) {
        machine_print(tally->name);
        machine_print(" was refused: status ");
        print_count((uint64_t)status);
        machine_print("\n");
        is_wrong = 1;
    }
}

static void compare(const struct golden_tensor *tensor, size_t moment, size_t first, size_t n)
{
    const double *expected = tensor->expected + (moment * GOLDEN_TARGETS + first) * tensor->size;
    const double *unit = tensor->unit + moment * tensor->size;
    for (size_t i = 0; i < n * tensor->size; i++) {
        const double difference = tensor->found[i] - expected[i];
        const double error = (difference < 0 ? -difference : difference) / unit[i % tensor->size];
        if (!(error <= worst)) {
            worst = error;
        }
        if (error != error) {
            is_wrong = 1;
        }
    }
}

/* Ask for all targets as the runtime's replay does: the first alone, the others at full width. */
static void predict(size_t moment)
{
    uint64_t before = machine_instructions();
    note(&refreshing, before, golden_refresh());
    for (size_t first = 0, n = 1; first < GOLDEN_TARGETS; first += n) {
        n = first == 0 ? 1 : GOLDEN_TARGETS - first;
        n = n > GOLDEN_WIDEST ? GOLDEN_WIDEST : n;
        before = machine_instructions();
        note(n == 1 ? &asking_one : &asking_many, before,
             golden_query(n, golden_targets + first * GOLDEN_INPUTS));
        for (size_t t = 0; t < sizeof golden_tensors / sizeof *golden_tensors; t++) {
            compare(&golden_tensors[t], moment, first, n);
        }
    }
}

static void learn_until(size_t moment, size_t *done)
{
    uint64_t before;
    const size_t n_at_once = GOLDEN_CONDITION;
    if (*done < n_at_once && n_at_once <= moment) {
        before = machine_instructions();
        note(&conditioning, before,
             golden_condition(n_at_once - *done, golden_x + *done * GOLDEN_INPUTS,
                              golden_y + *done * GOLDEN_OUTPUTS));
        *done = n_at_once;
    }
    for (; *done < moment; ++*done) {
        before = machine_instructions();
        note(&learning, before,
             golden_learn(golden_x + *done * GOLDEN_INPUTS, golden_y + *done * GOLDEN_OUTPUTS));
    }
}

/* Save, forget everything, load, and save again. */
static void keep(void)
{
    int is_second = 0;
    enum edgefold_status status = golden_save(save_some, &is_second);
    n_saved = place;
    golden_begin();
    place = 0;
    if (status == EDGEFOLD_OK) {
        status = golden_load(load_some);
    }
    place = 0;
    is_second = 1;
    if (status == EDGEFOLD_OK) {
        status = golden_save(save_some, &is_second);
    }
    if (status != EDGEFOLD_OK || place != n_saved) {
        machine_print("the snapshot was not the same again: status ");
        print_count((uint64_t)status);
        machine_print("\n");
        is_wrong = 1;
    }
}

static void report_stack(const char *name)
{
    machine_print(name);
    print_count(machine_stack_bytes());
    machine_print(" bytes\n");
}

static void report(const struct tally *tally)
{
    if (tally->n_calls == 0 || tally->total == 0) {
        return;
    }
    machine_print("instructions of ");
    machine_print(tally->name);
    machine_print(": ");
    print_count(tally->total / tally->n_calls);
    machine_print(" on average, ");
    print_count(tally->most);
    machine_print(" at most, of ");
    print_count(tally->n_calls);
    machine_print(" calls\n");
}

int main(void)
{
    machine_begin();
    golden_begin();
    size_t done = 0;
    for (size_t moment = 0; moment < GOLDEN_MOMENTS; moment++) {
        learn_until(golden_moments[moment], &done);
        predict(moment);
    }
    report(&conditioning);
    report(&learning);
    report(&refreshing);
    report(&asking_one);
    report(&asking_many);
    report_stack("stack of learning and predicting: ");
    keep();
    report_stack("stack: ");
    const int passed = !is_wrong && worst <= golden_tolerance;
    machine_print(passed ? "PASS: largest error " : "FAIL: largest error ");
    print_number(worst);
    machine_print(" of ");
    print_number(golden_tolerance);
    machine_print(", in scaled units\n");
    machine_exit(passed ? 0 : 1);
}
