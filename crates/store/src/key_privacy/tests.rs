//! How processes come to an agreement, without a store: a value that they propose and adopt in turns.

use super::*;

const NONE: OlderServers = OlderServers { are_running: false, left_values: false };
const RUNNING: OlderServers = OlderServers { are_running: true, left_values: true };
const LEFT: OlderServers = OlderServers { are_running: false, left_values: true };

/// The value in a store.
#[derive(Default)]
struct SharedValue(Option<Agreement>);

impl SharedValue {
    /// One process reads, writes and takes the value.
    fn agree(&mut self, process: &KeyPrivacy, older: OlderServers) -> Agreement {
        let before = self.0;
        let proposal = process.propose(before, older);
        self.0 = Some(proposal);
        process.adopt(proposal, before, older);
        proposal
    }

    fn form(&self) -> Option<AgreedForm> {
        self.0.map(|value| value.form)
    }
}

fn given(setting: PrivacySetting, secret: &str) -> KeyPrivacy {
    KeyPrivacy::with_secrets(setting, [secret]).unwrap()
}

#[test]
fn the_first_process_decides_and_the_others_follow() {
    let (mut store, one, two) = (SharedValue::default(), KeyPrivacy::default(), KeyPrivacy::default());
    assert_eq!(one.name_form(), None);
    let first = store.agree(&one, NONE);
    assert_eq!(first.form, AgreedForm::Hashed);
    assert_eq!(store.agree(&two, NONE), first);
    assert_eq!(one.name_form(), two.name_form());
    assert!(matches!(one.name_form(), Some(NameForm::Hashed(_))));
    assert_eq!(one.log_secret(), two.log_secret());
    // What was logged with its own secret before is still found.
    assert_eq!(two.logged_as("key").len(), 3);
}

#[test]
fn a_lost_value_is_written_again_by_whoever_knows_it() {
    let (mut store, one) = (SharedValue::default(), KeyPrivacy::default());
    let first = store.agree(&one, NONE);
    store.0 = None;
    assert_eq!(store.agree(&one, LEFT), first);
    // Somebody who knew nothing was faster: its value is taken.
    store.0 = None;
    let newcomer = store.agree(&KeyPrivacy::default(), NONE);
    assert_eq!(store.agree(&one, NONE), newcomer);
    assert_ne!(newcomer, first);
    // It found traces of this fleet, and took them for those of older servers.
    store.0 = None;
    assert_eq!(store.agree(&KeyPrivacy::default(), LEFT).form, AgreedForm::LegacyClear);
    assert_eq!(store.agree(&one, RUNNING).form, AgreedForm::LegacyClear);
    let again = KeyPrivacy::default();
    assert!(again.restore(&format!("hashed shared:{:032x}\n", 7)));
    assert_eq!(store.agree(&again, NONE).form, AgreedForm::Hashed);
    // What was saved for one store does not change the names of another one.
    let elsewhere = KeyPrivacy::default();
    assert!(elsewhere.restore(&again.save()));
    assert_eq!(SharedValue::default().agree(&elsewhere, RUNNING).form, AgreedForm::LegacyClear);
}

#[test]
fn names_stay_in_clear_until_an_operator_wants_it_and_older_servers_are_gone() {
    for older in [RUNNING, LEFT] {
        let (mut store, one) = (SharedValue::default(), KeyPrivacy::default());
        assert_eq!(store.agree(&one, older).form, AgreedForm::LegacyClear);
        assert_eq!(one.name_form(), Some(NameForm::Clear));
        assert!(one.log_secret().is_some());
        assert_eq!(store.agree(&one, NONE).form, AgreedForm::LegacyClear);
        let explicit = KeyPrivacy::new(PrivacySetting::Hashed);
        assert_eq!(store.agree(&explicit, RUNNING).form, AgreedForm::LegacyClear);
        assert_eq!(store.agree(&explicit, NONE).form, AgreedForm::Hashed);
        store.agree(&one, NONE);
        assert!(matches!(one.name_form(), Some(NameForm::Hashed(_))));
        assert_eq!(one.name_form(), explicit.name_form());
    }
    let explicit = KeyPrivacy::new(PrivacySetting::Hashed);
    assert_eq!(SharedValue::default().agree(&explicit, LEFT).form, AgreedForm::Hashed);
    assert_eq!(
        SharedValue::default().agree(&KeyPrivacy::new(PrivacySetting::Hashed), RUNNING).form,
        AgreedForm::LegacyClear
    );
}

#[test]
fn an_explicit_setting_is_applied_once() {
    let (mut store, auto) = (SharedValue::default(), KeyPrivacy::default());
    let (clear, hashed) = (KeyPrivacy::new(PrivacySetting::Clear), KeyPrivacy::new(PrivacySetting::Hashed));
    store.agree(&auto, NONE);
    assert_eq!(store.agree(&clear, NONE).form, AgreedForm::Clear);
    assert_eq!((clear.log_secret(), store.agree(&auto, NONE).form), (None, AgreedForm::Clear));
    assert_eq!(store.agree(&hashed, NONE).form, AgreedForm::Hashed);
    for process in [&clear, &auto, &hashed] {
        store.agree(process, NONE);
        assert_eq!(store.form(), Some(AgreedForm::Hashed));
    }
    assert_eq!(clear.name_form(), hashed.name_form());
}

#[test]
fn configured_secrets_are_not_stored_and_differences_are_reported() {
    let mut store = SharedValue::default();
    let (one, two) =
        (given(PrivacySetting::Auto, "a secret of the fleet"), given(PrivacySetting::Auto, "a secret of the fleet"));
    let agreed = store.agree(&one, NONE);
    assert!(agreed.to_string().starts_with("hashed given:"), "{agreed}");
    store.agree(&two, NONE);
    assert_eq!(one.name_form(), two.name_form());
    assert_eq!((one.warning(), two.warning()), (None, None));
    let without = KeyPrivacy::default();
    store.agree(&without, NONE);
    assert_eq!(without.warning(), Some(OTHER_SECRET));
    store.agree(&given(PrivacySetting::Auto, "another secret of it"), NONE);
    store.agree(&two, NONE);
    assert_eq!(two.warning(), Some(OTHER_SECRET));
    store.agree(&one, RUNNING);
    store.0 = Some(agreed);
    store.agree(&two, RUNNING);
    assert_eq!(two.warning(), Some(OLDER_SERVERS));
    store.agree(&two, NONE);
    assert_eq!(two.warning(), None);
}

#[test]
fn a_process_starts_from_what_another_saved() {
    let (mut store, one) = (SharedValue::default(), KeyPrivacy::default());
    let own = one.log_secret();
    store.agree(&KeyPrivacy::default(), NONE);
    let agreed = store.agree(&one, NONE);
    let two = KeyPrivacy::default();
    assert!(two.restore(&one.save()));
    assert_eq!((two.name_form(), two.log_secret()), (one.name_form(), one.log_secret()));
    assert_eq!(two.logged_as("key"), one.logged_as("key"));
    assert_ne!(own, two.log_secret());
    assert_eq!(SharedValue::default().agree(&two, LEFT), agreed);
    // Never agreed.
    let (alone, next) = (KeyPrivacy::default(), KeyPrivacy::default());
    assert!(alone.save().starts_with("none shared:") && next.restore(&alone.save()));
    assert_eq!((next.name_form(), next.log_secret()), (None, alone.log_secret()));
    // With a secret from elsewhere, the saved one finds what was logged with it.
    let given = given(PrivacySetting::Auto, "a secret of the fleet");
    let in_use = given.log_secret();
    assert!(given.restore(&one.save()));
    assert_eq!(given.log_secret(), in_use);
    assert!(one.logged_as("key").iter().all(|text| given.logged_as("key").contains(text)));
    assert!(!given.save().contains("shared:"), "{}", given.save());
    for damaged in ["", "hashed", "hashed shared:12", "hashed shared:zz345678901234567890123456789012\n", "x"] {
        assert!(!KeyPrivacy::default().restore(damaged), "{damaged:?}");
    }
}

#[test]
fn agreements_are_texts() {
    let secret = KeySecret::from_bits(0xab);
    for (form, name) in
        [(AgreedForm::Hashed, "hashed"), (AgreedForm::Clear, "clear"), (AgreedForm::LegacyClear, "legacy-clear")]
    {
        for (secret, text) in [
            (AgreedSecret::Shared(secret), "shared:000000000000000000000000000000ab"),
            (AgreedSecret::Given { fingerprint: 0xcd }, "given:00000000000000cd"),
        ] {
            let agreement = Agreement { form, secret };
            assert_eq!(agreement.to_string(), format!("{name} {text}"));
            assert_eq!(agreement.to_string().parse(), Ok(agreement));
        }
    }
    for bad in
        ["", "hashed", "hashed ", "hashed shared:ab", "other given:00000000000000cd", "hashed given:x0000000000000cd"]
    {
        assert!(bad.parse::<Agreement>().is_err(), "{bad:?}");
    }
}

#[test]
fn secrets_are_checked() {
    let error = |texts: &[&str]| KeyPrivacy::with_secrets(PrivacySetting::Auto, texts).map(|_| ()).unwrap_err();
    assert_eq!(error(&[]), SecretError::None);
    assert_eq!(error(&["short"]), SecretError::TooShort);
    assert_eq!(error(&["a secret of the fleet"; 9]), SecretError::TooMany);
}
