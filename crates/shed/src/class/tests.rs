//! Names, order and lowering of classes.

use super::*;

#[test]
fn classes_are_ordered_by_importance_and_have_names() {
    assert!(Class::ALL.is_sorted());
    for class in Class::ALL {
        assert_eq!(class.to_string().parse(), Ok(class));
    }
    assert_eq!("urgent".parse::<Class>(), Err(UnknownClass));
    assert_eq!("GET".parse::<Class>(), Err(UnknownClass));
}

#[test]
fn methods_have_classes() {
    let rows = [
        ("GET", Class::Get),
        ("HEAD", Class::Get),
        ("OPTIONS", Class::Get),
        ("POST", Class::Post),
        ("DELETE", Class::Post),
        ("BREW", Class::Post),
        ("get", Class::Post),
        ("", Class::Post),
    ];
    for (method, class) in rows {
        assert_eq!(Class::from_method(method), class, "{method}");
    }
}

#[test]
fn a_caller_lowers_its_class_and_never_raises_it() {
    for own in Class::ALL {
        for requested in Class::ALL {
            let class = own.lowered_to(requested);
            assert!(class <= own && class <= requested, "{own} lowered to {requested} is {class}");
        }
    }
    assert_eq!(Class::Post.lowered_to(Class::Critical), Class::Post);
    assert_eq!(Class::Critical.lowered_to(Class::Test), Class::Test);
}

#[test]
fn values_belong_to_classes() {
    let mut counts = ByClass::new([1, 2, 3, 4]);
    counts[Class::Post] = 30;
    assert_eq!(
        counts.iter().map(|(class, count)| (class.name(), *count)).collect::<Vec<_>>(),
        [("test", 1), ("get", 2), ("post", 30), ("critical", 4)]
    );
    assert_eq!(counts.map(|count| count * 2)[Class::Critical], 8);
}
